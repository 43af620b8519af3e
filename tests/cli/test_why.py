"""`headrace why`, and the errors of the page's options."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace.cli.run import why_process
from tests.cli.conftest import ENVIRONMENT, Run
from tests.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
SALES = ("--source", "sales=in/1.json")


def test_the_rows_are_shown_with_the_steps(headrace: Run) -> None:
    done = headrace("why", "flows:flow", "totals", '{"shop": "a", "total": 4}', *SALES)
    assert (done.returncode, done.stderr) == (0, "")
    assert_golden(GOLDEN / "why.txt", "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines()))


def test_as_json_for_programs(headrace: Run) -> None:
    done = headrace("why", "flows:flow", "totals", '{"shop": "b", "total": 2}', *SALES, "--json")
    found = json.loads(done.stdout)
    assert (found["found"], found["minimal"]) == (True, True)
    assert found["steps"] == ["sales: read 3 rows again; 1 has shop = 'b'.", "This row produces it."]
    assert found["sources"]["sales"] == {
        "why_not": "",
        "restriction": "shop = 'b'",
        "columns": ["shop", "price"],
        "numbers": [False, True],
        "rows": [{"values": ["b", "2"], "weight": 1, "needed": True}],
        "possible": 1,
        "needed": 1,
    }


def test_a_row_that_is_not_there_has_no_why(headrace: Run) -> None:
    done = headrace("why", "flows:flow", "totals", '{"shop": "a", "total": 5}', *SALES)
    assert done.returncode == 1
    said = "do not produce the row: it may have been replaced since or the sources may have changed."
    assert said in done.stdout


def test_rows_beyond_the_limit_leave_it_open(headrace: Run) -> None:
    asked = ("why", "flows:flow", "totals", '{"shop": "a", "total": 1}', *SALES, "--tick-rows=1")
    done = headrace(*asked, "--rows=1")
    assert done.returncode == 3
    assert done.stdout.splitlines()[0] == "Can't tell whether the row is in the sink: not all rows were read."
    assert "A higher --rows or --seconds of `headrace why` reads more." in done.stdout
    assert json.loads(headrace(*asked, "--rows=1", "--json").stdout)["conclusive"] is False
    done = headrace(*asked, "--rows=2")
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        1,
        "sales: read 3 rows again; 2 have shop = 'a'.",
    )


def test_windows_are_closed_if_that_gives_the_row(headrace: Run) -> None:
    row = '{"window_start": 2, "window_end": 4, "sales": 2}'
    assert "produce it." in headrace("why", "flows:minutes", "minutes", row, *SALES).stdout
    assert headrace("why", "flows:minutes", "minutes", row, *SALES, "--keep-open").returncode == 1


def test_a_file_named_like_a_module_of_python_does_not_end_the_search(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    (folder / "json.py").write_text("raise OSError('mine')")
    find = why_process(["why", "--source=sales=in/1.json"], "flows:flow")
    assert find("totals", '{"shop": "b", "total": 2}')["found"]


def test_a_row_that_is_nested_too_deeply_is_told_in_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    find = why_process(["why", "--source=sales=in/1.json"], "flows:flow")
    for deep in ("[" * 100_000, '{"shop": ' * 100_000):
        said = find("totals", deep)["why_not"]
        assert "is nested too deeply to be read" in said
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("why_row_of_other_columns", ("why", "flows:flow", "totals", '{"shop": "a"}', *SALES)),
        ("why_row_is_no_json", ("why", "flows:flow", "totals", "shop=a", *SALES)),
        ("why_row_of_other_types", ("why", "flows:flow", "totals", '{"shop": "a", "total": "x"}', *SALES)),
        ("why_no_such_sink", ("why", "flows:flow", "total", "{}", *SALES)),
        ("ui_no_checkpoint", ("ui", "nowhere")),
    ],
)
def test_mistakes_are_told(headrace: Run, name: str, arguments: tuple[str, ...]) -> None:
    done = headrace(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert_golden(GOLDEN / f"{name}.txt", re.sub(r"/\S*/nowhere", "FOLDER/nowhere", done.stderr))
