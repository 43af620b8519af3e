"""Without an extra, what needs it names the extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.requirements import missing_extra

# A module set to None in sys.modules cannot be imported.
WITHOUT = """\
import sys
for name in ("pyspark", "py4j", "google", "grpc", "pg8000", "pandas"):
    sys.modules[name] = None
"""
FLOW = """\
from typing import NamedTuple
import headrace as hr
class Number(NamedTuple):
    n: int
flow = hr.Flow("numbers")
flow.sink("out", flow.source("numbers", Number))
"""


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("import headrace; headrace.spark.run", ("headrace.spark.run needs py", "headrace[spark]")),
        ("from headrace.compute import Client", ("headrace.compute.Client needs", "headrace[serve]")),
        (
            "cli run flow.py:flow --on spark --source numbers=in.json",
            ("headrace.spark.run needs py", "headrace[spark]"),
        ),
        ("cli status", ("headrace status needs", "headrace[serve]")),
        ("cli pipeline dry-run", ("headrace pipeline needs", "headrace[pipelines]")),
        (
            "cli run flow.py:flow --source numbers=in.json --sink out=postgresql://me@db/d?table=t",
            ("needs pg8000", "headrace[postgres]"),
        ),
    ],
)
def test_what_needs_an_extra_names_it(program: str, told: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "in.json").write_text('{"n": 1}')
    command, _, arguments = program.partition(" ")
    if command == "cli":
        program = f"import headrace.cli.main as m; m.app({arguments.split()!r})"
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT + program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode != 0
    assert told[0] in ran.stderr
    assert f"Fix: pip install '{told[1]}'" in ran.stderr


@pytest.mark.parametrize(
    "run",
    [
        "hr.run(flow, {'numbers': hr.io.JsonFiles('in')}, {'out': hr.io.Print()}, checkpoint='state')",
        (
            "hr.run(flow, {'numbers': hr.io.JsonFiles('in')}, {'out': "
            "lambda tick, changes: print(tick, 'out +', *(f'n={each.row.n}' for each in changes))}, "
            "checkpoint='state')"
        ),
        (
            "import headrace.cli.main as m; "
            "m.app('run flow.py:flow --source numbers=json:in --sink out=- --checkpoint state'.split())"
        ),
    ],
)
def test_a_checkpoint_of_printed_rows_needs_no_extra(run: str, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "in").mkdir()
    program = WITHOUT + "import headrace as hr\nfrom flow import flow\n" + run
    for tick in (1, 2):
        (tmp_path / "in" / f"{tick}.json").write_text(f'{{"n": {tick}}}')
        ran = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ran.stdout.splitlines()[:1] == [f"{tick} out + n={tick}"], ran.stderr


def test_a_package_of_no_extra_is_not_renamed() -> None:
    assert missing_extra(ModuleNotFoundError(name="their_module"), "headrace run") is None
