"""`headrace run`."""

from __future__ import annotations

import importlib
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from tests.cli.conftest import ENVIRONMENT, Run


def current(folder: Path) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"select * from '{folder}/out/current/*.parquet' order by shop").fetchall()


def test_without_a_sink_the_changes_are_printed(headrace: Run) -> None:
    done = headrace("run", "flows:flow", "--source", "sales=in/1.json", "--tick-rows", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        "1 totals + shop=a total=1",
        "1 totals + shop=b total=2",
        "2 totals + shop=a total=4",
        "2 totals - shop=a total=1",
    ]


def test_a_source_may_have_a_limit_of_its_own(headrace: Run) -> None:
    done = headrace("run", "flows:flow", "--source", "sales=in/1.json", "--tick-rows", "sales=1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("3 totals")


def test_a_checkpoint_makes_the_next_run_go_on(headrace: Run, folder: Path) -> None:
    command = (
        "run", "flows.py:totals", "--source", "sales=json:in", "--sink", "totals=table:out?key=shop",
        "--checkpoint", "state",
    )  # fmt: skip
    done = headrace(*command)
    assert done.returncode == 0
    assert re.fullmatch(r"1 tick in [0-9.]+ s: 3 rows read, 2 changes written\n", done.stderr)
    assert current(folder) == [("a", 4), ("b", 2)]
    (folder / "in" / "2.json").write_text('{"shop": "a", "price": 10}\n')
    assert headrace(*command).returncode == 0
    assert current(folder) == [("a", 14), ("b", 2)]
    done = headrace(*command)
    assert (done.returncode, done.stderr) == (0, "nothing new since tick 2\n")


def test_a_rebuild_replaces_rows_whose_checkpoint_is_lost(headrace: Run, folder: Path) -> None:
    command = (
        "run", "flows.py:totals", "--source", "sales=json:in", "--sink", "totals=table:out?key=shop",
        "--checkpoint", "state",
    )  # fmt: skip
    assert headrace(*command).returncode == 0
    shutil.rmtree(folder / "state")
    refused = headrace(*command)
    assert refused.returncode == 2
    assert "`headrace run --adopt` writes only what differs" in refused.stderr
    (folder / "in" / "1.json").write_text('{"shop": "z", "price": 10}\n')
    done = headrace(*command, "--rebuild")
    assert done.returncode == 0
    assert re.fullmatch(r"1 tick in [0-9.]+ s: 1 row read, 1 change written\n", done.stderr)
    assert current(folder) == [("z", 10)]
    done = headrace(*command)
    assert (done.returncode, done.stderr) == (0, "nothing new since tick 1\n")


def test_an_adoption_writes_what_differs_from_rows_whose_checkpoint_is_lost(
    headrace: Run, folder: Path
) -> None:
    command = (
        "run", "flows.py:totals", "--source", "sales=json:in", "--sink", "totals=table:out?key=shop",
        "--checkpoint", "state",
    )  # fmt: skip
    assert headrace(*command).returncode == 0
    shutil.rmtree(folder / "state")
    (folder / "in" / "2.json").write_text('{"shop": "z", "price": 10}\n')
    done = headrace(*command, "--adopt")
    assert done.returncode == 0
    assert re.fullmatch(r"1 tick in [0-9.]+ s: 4 rows read, 1 change written\n", done.stderr)
    assert current(folder) == [("a", 4), ("b", 2), ("z", 10)]
    done = headrace(*command)
    assert (done.returncode, done.stderr) == (0, "nothing new since tick 2\n")


@pytest.mark.parametrize("option", ["--adopt", "--rebuild"])
def test_a_new_checkpoint_needs_a_folder_and_an_end(headrace: Run, option: str) -> None:
    command = ("run", "flows.py:totals", "--source", "sales=json:in", option)
    done = headrace(*command)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        f"P202 BadInput: {option} requires --checkpoint: the folder to replace",
    )
    done = headrace(*command, "--checkpoint", "state", "--follow")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        f"P202 BadInput: {option} and --follow are given",
    )


def test_a_run_without_sinks_has_nothing_to_adopt(headrace: Run) -> None:
    done = headrace("run", "flows.py:totals", "--source", "sales=json:in", "--checkpoint", "state", "--adopt")
    assert done.returncode == 2
    assert done.stderr.startswith("P202 BadInput: sink 'totals' is Print, whose rows cannot be read back")


def test_the_end_tells_which_rows_of_which_source_were_taken_back_and_never_there(
    headrace: Run, folder: Path
) -> None:
    command = ("run", "flows.py:stock", "--source", "sales=json:in", "--sink", "stock=table:out?key=shop")
    gone = [f'{{"shop": "c{n}", "price": 1, "weight": -1}}' for n in range(12)]
    (folder / "in" / "1.json").write_text("\n".join([gone[0], '{"shop": "a", "price": 1}']))
    done = headrace(*command, "--checkpoint", "state")
    assert done.returncode == 0
    assert done.stderr.splitlines()[1:] == [
        "source 'sales': 1 row was retracted more often than inserted; sink 'stock' holds it back:",
        "  -1 Sale(shop='c0', price=1)",
    ]
    (folder / "in" / "2.json").write_text("\n".join(gone[1:]))
    told = headrace(*command, "--checkpoint", "state").stderr.splitlines()[1:]
    assert told[0].startswith("source 'sales': 12 rows were retracted more often than inserted; ")
    assert (len(told), told[-1]) == (12, "  and 2 more")
    (folder / "in" / "3.json").write_text("\n".join(gone).replace("-1", "1"))
    assert len(headrace(*command, "--checkpoint", "state").stderr.splitlines()) == 1
    assert current(folder) == [("a", 1)]


def test_windows_stay_open_where_a_next_run_can_go_on(headrace: Run) -> None:
    command = ("run", "flows.py:minutes", "--source", "sales=json:in")
    closed, last = (
        "1 minutes + window_start=0 window_end=2 sales=1",
        "2 minutes + window_start=2 window_end=4 sales=2",
    )
    assert headrace(*command).stdout.splitlines() == [closed, last]
    assert headrace(*command, "--keep-open").stdout.splitlines() == [closed]
    assert headrace(*command, "--checkpoint", "state").stdout.splitlines() == [closed]
    assert headrace(*command, "--checkpoint", "state", "--end").stdout.splitlines() == [last]


def test_rows_that_are_set_aside_are_mentioned(headrace: Run, folder: Path) -> None:
    (folder / "in" / "2.json").write_text("?\n")
    done = headrace("run", "flows:flow", "--source", "sales=json:in?dead_letter=dead", "--sink", "totals=-")
    assert (done.returncode, done.stderr) == (0, "1 row could not be read and was set aside\n")
    assert len(list((folder / "dead").iterdir())) == 1


def test_a_run_into_files_ends_with_a_summary(headrace: Run, folder: Path) -> None:
    (folder / "in" / "2.json").write_text('?\n{"shop": "a", "price": 1, "minute": 0}\n')
    done = headrace(
        "run", "flows.py:minutes", "--source", "sales=json:in?dead_letter=dead", "--sink", "minutes=csv:out"
    )
    assert done.returncode == 0
    assert done.stdout == ""
    assert re.fullmatch(
        r"2 ticks in [0-9.]+ s: 4 rows read, 2 changes written; 1 row unreadable and set aside; "
        r"1 row late so far\n",
        done.stderr,
    )


def test_metrics_of_a_run_that_ends_are_written_to_a_file(headrace: Run, folder: Path) -> None:
    command = ("run", "flows:flow", "--source", "sales=json:in", "--metrics-file", "run.prom")
    assert headrace(*command).returncode == 0
    text = (folder / "run.prom").read_text()
    assert 'headrace_rows_total{flow="totals",source="sales"} 3.0' in text
    assert 'headrace_run_succeeded{flow="totals"} 1.0' in text
    (folder / "in" / "2.json").write_text("?\n")
    assert headrace(*command).returncode == 1
    assert 'headrace_run_succeeded{flow="totals"} 0.0' in (folder / "run.prom").read_text()
    done = headrace(*command, "--metrics", "0")
    assert "--metrics and --metrics-file are given" in done.stderr
    (folder / "in" / "2.json").unlink()
    done = headrace(*command[:-1], "nonesuch/run.prom")
    assert "metrics cannot be written to nonesuch/run.prom" in done.stderr


def test_messages_come_after_the_rows_through_a_pipe(folder: Path) -> None:
    (folder / "in" / "2.json").write_text("?\n")
    row = "1 totals + shop=b total=2"
    for source, last in (
        ("json:in?dead_letter=dead", "1 row could not be read and was set aside"),
        ("json:in?files_per_tick=1", "P201 BadRow: "),
    ):
        command = [sys.executable, "-m", "headrace.cli", "run", "flows:flow", "--source", f"sales={source}"]
        done = subprocess.run(
            command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert row in done.stdout.partition(last)[0], done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["flows:flow"], 2, "P202 BadInput: nothing is given for source 'sales'"),
        (["flows:flow", "--source", "sales"], 2, "P302 BadUri: --source sales: expected NAME=URI"),
        (
            ["flows:flow", "--source", "sales=in"],
            2,
            "P302 BadUri: 'in' does not name the file format",
        ),
        (["flows:flow", "--source", "sales=json:in", "--source", "sales=json:in"], 2, "is given twice"),
        (["flows:flow", "--source", "sales=json:in", "--sink", "x=-"], 2, "has no sink 'x'"),
        (["flows:flow", "--source", "sales=json:in", "--tick-rows", "many"], 2, "--tick-rows many: expected"),
        (["flows:flow", "--source", "sales=json:in", "--tick-rows", "x=1"], 2, "tick_rows names 'x'"),
        (["flows:flow", "--source", "sales=json:in", "--tick-rows", "0"], 2, "tick_rows is 0"),
        (["flows:flow", "--source", "sales=json:in", "--shards", "2"], 2, "--shards requires --on spark"),
        (["flows:flow", "--source", "sales=json:nowhere"], 1, "P301 UnreadableSource: "),
        (["flows:inverse", "--source", "sales=json:zero.json"], 1, "P020 EvaluationError: "),
        (["flows:flow", "--source", "sales=json:bad.json"], 1, "P201 BadRow: "),
        (
            ["flows:flow", "--source", "sales=json:in", "--on", "moon"],
            2,
            "'moon' is not one of 'here', 'spark'",
        ),
    ],
)
@pytest.mark.usefixtures("here")
def test_errors_are_messages_with_an_exit_code(
    folder: Path, arguments: list[str], code: int, text: str
) -> None:
    (folder / "zero.json").write_text('{"shop": "a", "price": 0}')
    (folder / "bad.json").write_text('{"shop": "a"}')
    done = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["run", *arguments])
    assert done.exit_code == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("sink", ["table:o?key=shop", "delta:o?key=shop"])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "in a later tick"])
@pytest.mark.usefixtures("here")
def test_an_update_whose_old_row_has_another_key_fails_the_run_and_is_told(
    folder: Path, sink: str, later: bool
) -> None:
    came = '{"op": "c", "before": null, "after": {"shop": "a", "price": 1}}'
    changed = '{"op": "u", "before": {"shop": "a ", "price": 1}, "after": {"shop": "a", "price": 2}}'
    (folder / "changes").mkdir()
    ends = ["--source", "sales=debezium+json:changes", "--sink", f"stock={sink}", "--checkpoint", "state"]
    (folder / "changes" / "1.json").write_text(f"{came}\n" if later else f"{came}\n{changed}\n")
    done = CliRunner().invoke(app, ["run", "flows.py:stock", *ends])
    if later:
        assert done.exit_code == 0, done.output
        (folder / "changes" / "2.json").write_text(f"{changed}\n")
        done = CliRunner().invoke(app, ["run", "flows.py:stock", *ends])
    assert done.exit_code == 1, done.output
    assert "P208 DuplicateKey: sink 'stock': two rows have the same key (shop)" in done.stderr
    assert "('a ', 1) was also retracted in this tick, and is missing." in done.stderr
    assert "The rows come from source 'sales'." in done.stderr


@pytest.mark.usefixtures("here")
def test_a_disk_that_cannot_be_written_is_a_message_too(folder: Path) -> None:
    (folder / "out").write_text("a file where a folder should be")
    ends = ["--source", "sales=json:in", "--sink", "totals=changelog:out/here"]
    done = CliRunner().invoke(app, ["run", "flows:flow", *ends])
    assert done.exit_code == 1
    assert done.stderr.startswith("NotADirectoryError: ")


@pytest.mark.usefixtures("here")
def test_a_second_ctrl_c_has_an_exit_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # Imported here: earlier tests may have left another one behind in its package.
    monkeypatch.setattr(importlib.import_module("headrace.engine.run"), "run", interrupted)
    done = CliRunner().invoke(app, ["run", "flows:flow", "--source", "sales=json:in"])
    assert (done.exit_code, done.stderr) == (130, "stopped immediately; committed ticks are kept\n")


def test_another_flow_on_a_checkpoint_is_refused(headrace: Run) -> None:
    ends = ("--source", "sales=json:in", "--checkpoint", "state")
    assert headrace("run", "flows:totals", *ends).returncode == 0
    done = headrace("run", "flows:inverse", *ends)
    assert done.returncode == 2
    assert done.stderr.startswith("P310 FlowChanged: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_signal_ends_a_run_that_follows_and_says_where_to_go_on(
    headrace: Run, folder: Path, number: signal.Signals, checkpoint: bool
) -> None:
    options = ["--checkpoint", "state"] if checkpoint else []
    command = ["run", "flows:flow", "--source", "sales=json:in", "--sink", "totals=-", *options]
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "headrace.cli", *command, "--follow"],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        first = [running.stdout.readline() for _ in range(2)]
        running.send_signal(number)
        rest, errors = running.communicate(timeout=60)
    follows, _, errors = errors.partition("\n")
    assert follows == "following sales (json:in), at tick 0; waiting for new rows, Ctrl-C stops"
    assert sorted(first) == ["1 totals + shop=a total=4\n", "1 totals + shop=b total=2\n"]
    assert rest == ""
    assert running.returncode == 128 + number
    if not checkpoint:
        assert errors == "stopped after tick 1; nothing is saved without --checkpoint\n"
        return
    assert errors == "stopped after tick 1; state is saved in state: the same command resumes from there\n"
    (folder / "in" / "2.json").write_text('{"shop": "b", "price": 1}\n')
    assert sorted(headrace(*command).stdout.splitlines()) == [
        "2 totals + shop=b total=3",
        "2 totals - shop=b total=2",
    ]
