"""The demonstration runs through, on a terminal and into a file, and notices a wrong answer."""

import io
from typing import Any

import pytest
from rich.console import Console

from examples.nexmark import demo


def output(*arguments: str, terminal: bool = False) -> str:
    file = io.StringIO()
    demo.main(list(arguments), Console(file=file, force_terminal=terminal, width=100, highlight=False))
    return file.getvalue()


def test_into_a_file_it_writes_a_line_per_tick_and_the_check() -> None:
    text = output("--on", "here", "--events", "3000", "--ticks", "6")
    assert "Stratum 2: when stratum 1 is complete" in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("tick ")] == list("123456")
    assert "Checked: the in-process engine, given all 3,000 events in one tick, answers the same" in text
    assert "\x1b" not in text


def test_on_a_terminal_it_shows_progress_and_the_averages() -> None:
    text = output("--on", "here", "--events", "3000", "--ticks", "6", terminal=True)
    assert "6/6" in text
    assert "rows/s" in text
    assert "Average closing price by category" in text


def test_ticks_may_be_more_than_events_divide_into() -> None:
    assert "Checked" in output("--on", "here", "--events", "130", "--ticks", "7")


def test_a_wrong_answer_ends_it_with_both_answers() -> None:
    with pytest.raises(SystemExit, match="The answers differ"):
        demo.check(Console(file=io.StringIO()), {10: 1.0}, 200)


@pytest.mark.verify
@pytest.mark.spark
def test_on_spark_it_checks_the_answer_and_shows_that_spark_alone_refuses(spark: Any) -> None:
    text = output("--events", "4000", "--ticks", "2")
    assert "Checked: the in-process engine, given all 4,000 events in one tick, answers the same" in text
    for mode in ("update", "append", "complete"):
        assert f"{mode} mode: refused, " in text
    assert spark.range(1).count() == 1, "the session is not the demonstration's to stop"
