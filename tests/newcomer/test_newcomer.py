"""Mistakes of a first day, each with all that is seen: what was printed, then the error.

`cases/x.py` is a script, `cases/x.txt` beside it what is seen. `commands/x.txt` has command lines behind `$`,
each with its answer, in the folder that `shop` makes. Mistakes that `tests/errors` has are not repeated.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

typer = pytest.importorskip("typer")
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import HeadraceError
from tests.golden import assert_golden

HERE = Path(__file__).parent
CASES = sorted((HERE / "cases").glob("*.py"))
COMMANDS = sorted((HERE / "commands").glob("*.txt"))

FLOWS = """
from typing import NamedTuple

import headrace as hr
from headrace import Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("totals", orders.group_by("country").agg(total=hr.sum(col.price)))
"""
FILES = {
    "shop.py": FLOWS,
    "broken.py": "import pandsa\n",
    "good.csv": "id,country,price\n1,PE,12.5\n",
    "empty/.keep": "",
    "semicolons.csv": "id;country;price\n1;PE;12.5\n",
    "header.csv": "id,contry,price\n1,PE,12.5\n",
    "comma.csv": 'id,country,price\n1,PE,"12,5"\n',
    "notes.json": "id: 1\n",
}


def seen(case: Path, folder: Path) -> str:
    """All that a script shows, with the places of its files as they are beside it."""
    out = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out):
        try:
            runpy.run_path(str(case))
        except HeadraceError as error:
            out.write(f"{error}\n")
        except Exception as error:  # of Python itself: it has no text of ours
            out.write(f"{type(error).__name__}: {error}\n")
    text = out.getvalue().replace(str(folder), ".")
    return re.sub(
        r"process \d+ on \S+ has held it since .* UTC", "process N on HOST has held it since TIME", text
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_mistake_of_the_first_day_is_explained(case: Path, tmp_path: Path) -> None:
    assert_golden(case.with_suffix(".txt"), seen(case, tmp_path))


def test_no_mistake_ends_in_silence_or_in_words_of_python() -> None:
    texts = {case.stem: case.with_suffix(".txt").read_text(encoding="utf-8") for case in CASES}
    by_python = [name for name, text in texts.items() if not re.match(r"P\d{3} ", text)]
    # A module has errors of Python only; a generator prints before it fails; a stream prints its columns.
    modules = ["aggregate_of_another_library", "attribute_misspelt"]
    assert by_python == [
        *modules,
        "generator_read_twice",
        "print_a_stream",
        "source_of_io",
        "source_of_io_misspelt",
    ]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Path]:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("file", COMMANDS, ids=lambda file: file.stem)
def test_a_command_that_is_mistaken_is_answered(file: Path, shop: Path) -> None:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("$ ")]
    text = "\n".join(f"{line}\n{answer(line.removeprefix('$ headrace '), shop)}" for line in lines)
    assert "Traceback" not in text
    assert_golden(file, text)


def answer(command: str, folder: Path) -> str:
    runner = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
    done = runner.invoke(app, shlex.split(command))
    text = "\n".join(line.rstrip() for line in done.output.replace(str(folder), ".").splitlines())
    text = re.sub(r" in [0-9.]+ s: ", " in ... s: ", text)
    return f"{text}\n[{done.exit_code}]\n"
