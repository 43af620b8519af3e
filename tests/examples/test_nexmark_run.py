"""The command that runs any query: it shows the first rows and notices an answer that is not DuckDB's."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import pytest
from rich.console import Console

from examples.nexmark import run


def output(*arguments: str) -> str:
    file = io.StringIO()
    run.main(list(arguments), Console(file=file, width=100, highlight=False))
    return file.getvalue()


def test_it_shows_the_first_rows_of_each_query_and_compares_them() -> None:
    lines = output("q2", "q17", "--events", "20000", "--ticks", "7", "--rows", "2").splitlines()
    assert lines[0] == "q2: Which bids are on some chosen auctions?"
    assert lines[1].startswith("  auction=1107 price=1")
    assert "  and " in lines[3]
    assert [line.split(",")[0] for line in lines[-2:]] == ["Checked: q2", "Checked: q17"]


def test_all_of_them_run_as_one_flow() -> None:
    assert output("all", "--events", "1000", "--rows", "0").count("the same as from DuckDB") == 23


def test_an_answer_that_is_not_that_of_the_database_ends_it_and_is_shown() -> None:
    answers = {"q2": run.Answer(Counter({(1107, 5): 2}))}
    with pytest.raises(SystemExit, match=r"(?s)q2: .*1 rows are here alone, such as \[\(1107, 5\)\]"):
        run.compare(Console(file=io.StringIO()), answers, {"q2": Counter({(1107, 5): 1, (1107, 6): 1})})


@pytest.mark.verify
@pytest.mark.spark
@pytest.mark.parametrize("on", ["spark", "batch"])
def test_on_spark_it_generates_the_events_there(on: str, spark: Any) -> None:
    assert "Checked: q12, " in output("q12", "--on", on, "--events", "2000", "--ticks", "2")
    assert spark.range(1).count() == 1, "the session is not its own to stop"
