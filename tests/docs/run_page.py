"""Run the blocks of a page in the current folder: `python -m tests.docs.run_page PAGE [PICTURES]`.

Exits with 1 and a message at the first block that prints something else than the page says. The pictures are
written below PICTURES.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import linecache
import re
import subprocess
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.testing.tick_tables import InProcess, check_flow
from headrace.view import picture_of, to_svg
from tests.docs.pages import Block, Drawing, read_page

DOCTEST_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(page: Path, pictures: Path) -> None:
    """Raises `AssertionError` with the place in the page."""
    # Rows of classes defined on the page are pickled by the name of this module.
    module = sys.modules["page"] = ModuleType("page")
    shell: Shell | None = None
    # A picture may stand above the code of its flow.
    waiting: list[Drawing] = []
    try:
        for item in read_page(page):
            where = f"{page.name}:{item.line}"
            match item:
                case Drawing():
                    waiting.append(item)
                case Block(runs=False):
                    pass
                case Block(title=str(title)):
                    Path(title).parent.mkdir(parents=True, exist_ok=True)
                    Path(title).write_text(item.text, "utf-8")
                case Block(language="console"):
                    shell = shell or Shell()
                    _console(item, where, shell)
                case Block(language="ticks"):
                    check_flow(InProcess(), vars(module)["flow"], item.text)
                case Block(language="pycon"):
                    _doctest(item, where, vars(module))
                case _:
                    _compare(where, item.text, _python(item, page, vars(module)), item.output or "")
            for drawing in [d for d in waiting if d.variable in vars(module)]:
                waiting.remove(drawing)
                drawn = to_svg(picture_of(vars(module)[drawing.variable]))
                (pictures / drawing.file).write_text(drawn, "utf-8")
        assert not waiting, f"{page.name}: nothing is called {waiting[0].variable}"
    finally:
        if shell is not None:
            shell.close()


def _python(block: Block, page: Path, names: dict[str, Any]) -> str:
    # Lines of the page stand at their own numbers, for tracebacks and for places in messages.
    source = "\n" * (block.line - 1) + block.text
    name = str(page)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            exec(compile(source, name, "exec", dont_inherit=True), names)
        except Exception as error:
            if block.output is None:
                raise
            out.writelines(traceback.format_exception_only(error))
    return out.getvalue()


def _doctest(block: Block, where: str, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, where, where, block.line)
    out = io.StringIO()
    result = doctest.DocTestRunner(optionflags=DOCTEST_FLAGS).run(test, out=out.write, clear_globs=False)
    names.update(test.globs)
    assert not result.failed, out.getvalue()


def _console(block: Block, where: str, shell: Shell) -> None:
    for command, expected in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
        _compare(where, command, shell.run(command), expected)


def _compare(where: str, ran: str, printed: str, expected: str) -> None:
    # Within a line `...` stands for a part of it; alone on a line, for any number of lines.
    pattern = "\n".join(
        "(?s:.*?)" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*?")
        for line in expected.strip().split("\n")
    )
    assert re.fullmatch(pattern, printed.strip()), (
        f"{where}:\n{ran}\n--- printed\n{printed}\n--- the page says\n{expected}"
    )


class Shell:
    """A bash for the commands of one page, so that its jobs, variables and folder stay."""

    END = "--- end of the command ---"

    def __init__(self) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        # Jobs are groups of their own, so that `kill %1` and the end reach all of a job.
        self._write("set -m")

    def run(self, command: str) -> str:
        self._write(f"{command}\n</dev/null echo; echo '{self.END}'")
        assert self._bash.stdout
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.strip() == self.END:
                break
            lines.append(line)
        return "".join(lines)

    def close(self) -> None:
        assert self._bash.stdin
        with contextlib.suppress(BrokenPipeError):
            self._write('for job in $(jobs -p); do kill -TERM -- "-$job"; done; wait')
            self._bash.stdin.close()
        self._bash.wait(60)

    def _write(self, text: str) -> None:
        assert self._bash.stdin
        self._bash.stdin.write(text + "\n")
        self._bash.stdin.flush()


if __name__ == "__main__":
    try:
        run_page(Path(sys.argv[1]), Path(sys.argv[2]))
    except AssertionError as error:
        sys.exit(str(error))
