"""Commands and their output, as a README shows them.

    python -m tests.examples.readme DATA

writes into the READMEs of the examples what their commands print now; DATA is the folder of flights.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

READMES = [ROOT / "examples" / name / "README.md" for name in ("nexmark", "flights", "queries")]

_BLOCK = re.compile(r"^```\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(readme: Path) -> Iterator[str]:
    """The blocks of a README that begin with a command: `$ ` before each, a `\\` where it goes on.

    Not those of the demonstration: its times are others each time (`test_demo.py` runs it).
    """
    found = _BLOCK.findall(readme.read_text(encoding="utf-8"))
    yield from (block for block in found if "examples.nexmark.demo" not in block)


def commands(block: str) -> list[str]:
    """The commands of a block."""
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)


def run(block: str, folders: Mapping[str, Path]) -> str:
    """The block as its commands fill it now, with each name of a folder standing for that folder."""
    filled: list[str] = []
    for command in commands(block):
        line = command
        for name, folder in folders.items():
            line = line.replace(name, str(folder))
        script = (
            f'python() {{ "{sys.executable}" "$@"; }}\nheadrace() {{ python -m headrace.cli "$@"; }}\n{line}'
        )
        done = subprocess.run(
            ["sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, env=_environment()
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        output = done.stdout
        for name, folder in folders.items():
            output = output.replace(str(folder), name)
        filled.append(f"$ {command}\n{output}")
    return "".join(filled)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "COLUMNS": "100"}


def main() -> None:
    for readme in READMES:
        text = readme.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            folders = {f"/tmp/{readme.parent.name}": Path(folder, "files"), "DATA": Path(sys.argv[1])}
            for block in blocks(readme):
                text = text.replace(block, run(block, folders).rstrip() + "\n")
        readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
