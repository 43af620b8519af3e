"""The commands that only look at a flow, and what all commands share."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from tests.cli.conftest import ENVIRONMENT, Run


def test_explain_says_what_waits_and_shows_code_if_asked(headrace: Run) -> None:
    short, long = headrace("explain", "flows:flow"), headrace("explain", "flows:flow", "--code")
    assert short.returncode == long.returncode == 0
    assert "Flow 'totals'" in short.stdout
    assert "waits for source 'sales'" in short.stdout
    assert "def " not in short.stdout
    assert "def tick(" in long.stdout


def test_explain_on_spark_shows_no_code_and_says_so(headrace: Run) -> None:
    done = headrace("explain", "flows:flow", "--on", "spark", "--code")
    assert (done.returncode, "--code requires --on here" in done.stderr) == (2, True), done.stderr


def test_draw_writes_text_for_two_tools(headrace: Run, folder: Path) -> None:
    assert "flowchart LR" in headrace("draw", "flows:flow").stdout
    assert headrace("draw", "flows:flow", "--format", "dot", "--out", "flow.dot").stdout == ""
    assert (folder / "flow.dot").read_text().startswith("digraph")


@pytest.mark.parametrize(
    "command",
    [
        ("run", "flows:flow", "--source", "sales=json:in", "--checkpoint", "s3://b/t"),
        ("run", "flows:flow", "--source", "sales=json:s3://b/t"),
        ("run", "flows:flow", "--source", "sales=json:in", "--sink", "totals=changelog:s3://b/t"),
        (
            "package",
            "flows:flow",
            "--source",
            "sales=json:/in",
            "--sink",
            "totals=changelog:/out",
            "--checkpoint",
            "s3://b/t",
        ),
        (
            "package",
            "flows:flow",
            "--source",
            "sales=json:/in",
            "--sink",
            "totals=changelog:/out",
            "--out",
            "s3://b/t",
        ),
        ("draw", "flows:flow", "--out", "s3://b/t"),
        ("state", "s3://b/t"),
        ("rewind", "s3://b/t", "1"),
        ("skip", "s3://b/t"),
        ("skip", "s3://b/t", "in.csv"),
        ("skip", "s3://b/t", "in.csv", "--undo"),
        ("reshard", "s3://b/t", "2", "flows:flow"),
        ("doctor", "--master", "local[1]", "--checkpoint", "s3://b/t"),
        ("controller", "--state", "s3://b/t"),
        ("controller", "--state", "state", "--listen", "127.0.0.1:0", "--collections", "sqlite:s3://b/t"),
        ("replica", "--listen", "127.0.0.1:0", "--state", "s3://b/t"),
    ],
    ids=lambda command: " ".join(command[:1] + command[-2:]),
)
@pytest.mark.usefixtures("here")
def test_a_place_of_an_unsupported_scheme_is_refused_and_no_folder_is_made(
    command: tuple[str, ...], folder: Path
) -> None:
    before = set(folder.iterdir())
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2, done.output
    assert "P302 BadUri" in done.stderr
    assert "the scheme 's3' of 's3://b/t' is not supported\n\nIt must be a path" in done.stderr
    assert {each.name for each in set(folder.iterdir()) - before} <= {"__pycache__"}


@pytest.mark.usefixtures("here")
def test_a_controller_of_a_store_that_is_none_leaves_no_folder(folder: Path) -> None:
    command = ("controller", "--state", "cst", "--listen", "127.0.0.1:0", "--collections", "s3://b/r")
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2, done.output
    assert "P302 BadUri: 's3://b/r' names no store of collections" in done.stderr
    assert not (folder / "cst").exists()


@pytest.mark.parametrize("arguments", [(), ("in.csv",), ("in.csv", "--undo")])
@pytest.mark.usefixtures("here")
def test_what_is_no_checkpoint_skips_nothing(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ("skip", "nothere", *arguments))
    assert done.exit_code == 2, done.output
    assert "nothere is not the folder of a checkpoint" in done.stderr


@pytest.mark.parametrize("name", ["nothing.sql", "in"])
@pytest.mark.usefixtures("here")
def test_a_query_that_is_no_file_is_told(name: str) -> None:
    done = CliRunner().invoke(app, ("plan", name))
    text = f"P105 FlowNotFound: there is no file {name}\n\nFix: name a .sql or a .plan file\n"
    assert (done.exit_code, done.stderr) == (2, text)


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"headrace {hr.__version__}\n")


FLOWS_OF_FILE = ("totals", "stock", "inverse", "minutes", "flow")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("headrace re", ["reshard", "rewind", "replica", "replicas"]),
        ("headrace run --on ", ["here", "spark"]),
        ("headrace check --output-format g", ["github"]),
        ("headrace run flows:flow --si", ["--sink"]),
        ("headrace run flows.py", [f"flows.py:{name}" for name in FLOWS_OF_FILE]),
        ("headrace check flows.py:t", ["flows.py:totals"]),
        ("headrace run flows.py:flow --source ", ["sales="]),
        ("headrace run flows.py --sink m", ["minutes="]),
        ("headrace run broken.py --source ", []),
        ("headrace run flows:flow --source ", []),
        ("headrace explain nothing.py", []),
    ],
)
def test_a_shell_completes_what_may_come_next(folder: Path, typed: str, offered: list[str]) -> None:
    (folder / "broken.py").write_text("def f(:")
    with (folder / "flows.py").open("a") as flows:
        flows.write("raise SystemExit('it is not run')\ndef needs(what): return hr.Flow(what)\n")
    asked = {
        "_HEADRACE_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    command = [sys.executable, "-c", "from headrace.cli.main import app; app(prog_name='headrace')"]
    done = subprocess.run(
        command, env={**ENVIRONMENT, **asked}, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == offered, done.stderr


def test_help_lists_the_commands_and_imports_nothing_heavy() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(command in result.stdout for command in ("run", "explain", "draw", "pipeline", "view"))
    headings = [line.strip("╭─╮ ") for line in result.stdout.splitlines() if line.startswith("╭")]
    assert headings == [
        "Options",
        "Flows",
        "Checkpoints",
        "Views kept up to date behind replicas",
        "Spark and its pipelines",
        "Pull-streams",
    ]
    code = (
        "import sys; from headrace.cli.main import app; "
        "sys.exit(' '.join({'pyarrow', 'pyspark', 'msgpack', 'headrace.engine'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""


def test_without_typer_a_sentence_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; import headrace.cli.main"
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the command line needs two more packages: pip install 'headrace[cli]'\n"


def test_on_a_terminal_a_line_shows_the_pace_and_standard_output_stays_clean(folder: Path) -> None:
    screen, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "run", "flows:flow", "--source", "sales=json:in"],
        cwd=folder,
        env={**ENVIRONMENT, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    ) as running:
        os.close(terminal)
        shown = b""
        while chunk := _read(screen):
            shown += chunk
        assert running.stdout is not None
        printed = running.stdout.read()
    os.close(screen)
    assert running.returncode == 0
    assert sorted(printed.splitlines()) == ["1 totals + shop=a total=4", "1 totals + shop=b total=2"]
    assert "tick 1   3 rows in, 2 changes out" in shown.decode()


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 4096)
    except OSError:  # what Linux says when the other end is closed
        return b""
