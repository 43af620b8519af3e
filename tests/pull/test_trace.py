"""Traces and their notation: what is written is read again, and what is no trace is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.pull.errors import BadTrace
from headrace.pull.rules.trace import (
    LARGEST_INDEX,
    Answer,
    Event,
    OpaqueValue,
    Request,
    Trace,
    parse,
    read_trace,
)
from tests.golden import assert_golden

TEXTS = Path(__file__).parent / "bad_traces"


class Opaque:
    """A value with a text of its own, which is no literal."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


indexes = st.integers(1, LARGEST_INDEX)
messages = st.none() | st.text(max_size=12) | st.text("() '\"\\*#\n", max_size=6)
literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8) | st.binary(max_size=5),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)  # fmt: skip
requests = st.one_of(
    st.builds(Request, st.sampled_from(["D", "TI"]), st.just("ask"), indexes, st.none(), st.none() | indexes),
    st.builds(Request, st.sampled_from(["D", "TI"]), st.sampled_from(["abort", "done"]), indexes),
    st.builds(
        Request, st.sampled_from(["D", "TI"]), st.sampled_from(["error", "errorInd"]), indexes, messages
    ),
)
answers = st.one_of(
    st.builds(Answer, st.sampled_from(["U", "TO"]), indexes, st.just("value"), literals),
    st.builds(
        Answer,
        st.sampled_from(["U", "TO"]),
        indexes,
        st.just("value"),
        values=st.lists(literals, max_size=3).map(tuple),
    ),
    st.builds(Answer, st.sampled_from(["U", "TO"]), indexes, st.just("done")),
    st.builds(Answer, st.sampled_from(["U", "TO"]), indexes, st.just("error"), message=messages),
)
events = st.lists(requests | answers, max_size=6).map(tuple)


@given(events)
def test_a_trace_that_is_written_is_read_again(written: tuple[Event, ...]) -> None:
    trace = Trace(written)
    assert parse(str(trace)) == trace
    assert parse(trace.texts()) == trace
    assert parse("\n".join(trace.texts())) == trace


@given(st.text(max_size=20))
@example("it's")
@example(")")
@example("a, b")
@example("[1, 2")
@example("'")
@example("<f at 0x7f>\n")
def test_a_value_that_is_no_literal_is_kept_as_its_text(text: str) -> None:
    for written in (Answer("U", 1, "value", Opaque(text)), Answer("U", 1, "value", values=(Opaque(text), 1))):
        once = parse(str(written))
        assert str(parse(str(once))) == str(once), "and from then on it is the same"


def test_a_text_in_place_of_a_value_is_that_text() -> None:
    (answer,) = parse("U:ans1=value(Sale(shop='a', price=(1, 2)))").events
    assert isinstance(answer, Answer)
    assert isinstance(answer.value, OpaqueValue)
    assert answer.value == "Sale(shop='a', price=(1, 2))"
    assert str(answer) == "U:ans1=value(Sale(shop='a', price=(1, 2)))"


def test_a_value_that_cannot_show_itself_is_shown_by_its_type() -> None:
    assert str(Answer("U", 1, "value", Silent())) == "U:ans1=value(<Silent>)"
    assert str(Answer("U", 1, "value", 10 ** (sys.get_int_max_str_digits() + 1))) == "U:ans1=value(<int>)"


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("D:ask1", Request("D", "ask", 1)),
        ("D:ask1*512", Request("D", "ask", 1, most=512)),
        ("TI:abort2", Request("TI", "abort", 2)),
        ("D:error2(disk full (sda))", Request("D", "error", 2, "disk full (sda)")),
        ("D:error2(can't)", Request("D", "error", 2, "can't")),
        ("D:error2", Request("D", "error", 2)),
        ("D:error2()", Request("D", "error", 2, "")),
        ("D:done3", Request("D", "done", 3)),
        ("D:errorInd3(E)", Request("D", "errorInd", 3, "E")),
        ("U:ans1=value('x')", Answer("U", 1, "value", "x")),
        ("U:ans1=value((1, 'a)'))", Answer("U", 1, "value", (1, "a)"))),
        ("U:ans1=values()", Answer("U", 1, "value", values=())),
        ("U:ans1=values(1, 'a, b', (2, 3))", Answer("U", 1, "value", values=(1, "a, b", (2, 3)))),
        ("TO:ans2=done", Answer("TO", 2, "done")),
        ("U:ans3=error(E)", Answer("U", 3, "error", message="E")),
        ("U:ans3=error('a\\nb')", Answer("U", 3, "error", message="a\nb")),
    ],
)
def test_the_notation(text: str, event: Event) -> None:
    assert parse(text).events == (event,)
    assert str(event) == text


def test_values_of_a_batch_are_counted() -> None:
    assert Answer("U", 1, "value", 7).carried == 1
    assert Answer("U", 1, "value", values=(7, 8)).carried == 2
    assert Answer("U", 1, "done").carried == 0


def test_upstream_of_a_transformer_is_written_apart() -> None:
    text = "D:ask1 TI:ask1 U:ansT1=done TO:ans1=done"
    trace = parse(text)
    assert trace.of_transformer
    assert str(trace) == text
    assert [event.port for event in trace.events] == ["D", "TI", "U", "TO"]


def test_a_transformer_that_has_done_nothing_yet_is_one_by_its_notation() -> None:
    assert parse("D:ask1 U:ansT1=done").of_transformer
    assert not parse("D:ask1 U:ans1=done").of_transformer


def test_comments_and_lines_are_between_events() -> None:
    assert parse("# all\nD:ask1 # one\n\n\tD:ask2 #two").events == parse("D:ask1 D:ask2").events


# -- files ------------------------------------------------------------------------------------------


def test_a_file_says_what_the_trace_is() -> None:
    trace = read_trace("# recorded\nlayer: 2  # no errors\n complete: no\nD:ask1\n")
    assert (trace.layer, trace.complete, str(trace)) == (2, False, "D:ask1")
    assert read_trace("D:ask1") == Trace(parse("D:ask1").events, layer=3, complete=True)
    assert read_trace("") == Trace(())


def test_a_file_may_be_json() -> None:
    assert read_trace('["D:ask1", "U:ans1=done"]') == parse("D:ask1 U:ans1=done")
    assert read_trace('{"events": ["D:ask1"], "layer": 1, "complete": false}') == Trace(
        parse("D:ask1").events, 1, False
    )


@given(st.text(max_size=40) | st.text("DUTIO:askbortndevlu=1230()'\"*# \n\\", max_size=60))
@example("D:ask" + "9" * 5000)
@example("U:ans1=value(" + "(" * 100_000)
@example("[" * 100_000)
@example("U:ans1=value(" + "-" * 100_000 + "1)")
@example("U:ans1=value(" + "[" * 5_000 + "]" * 5_000 + ")")
@example("D:error1(\ud800)")
@example("layer: 1\r\nD:ask1\r\n")
def test_any_text_is_a_trace_or_is_refused(text: str) -> None:
    for read in (parse, read_trace):
        error, trace = refusal(read, text)
        if trace is not None:
            assert parse(str(trace)).texts() == trace.texts()
        else:
            assert error is not None
            assert error.fix
            assert len(str(error)) < 1000


def refusal(read: Callable[[str], Trace], text: str) -> tuple[BadTrace | None, Trace | None]:
    try:
        return None, read(text)
    except BadTrace as error:
        return error, None


@given(events, st.data())
def test_a_damaged_trace_is_a_trace_or_is_refused(written: tuple[Event, ...], data: st.DataObject) -> None:
    text = str(Trace(written))
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(st.text(max_size=2)) + text[at + data.draw(st.integers(0, 2)) :]
    _, trace = refusal(parse, damaged)
    assert trace is None or parse(str(trace)).texts() == trace.texts()


BAD = {
    "no_event": "D:ask1\n  U:ans1",
    "index_zero": "D:ask0",
    "index_too_large": "D:ask12345678901",
    "no_space": "D:ask1D:ask2",
    "value_without_brackets": "U:ans1=value",
    "done_with_brackets": "U:ans1=done(7)",
    "ask_with_brackets": "D:ask1(7)",
    "batch_of_an_abort": "D:abort1*3",
    "bracket_left_open": "D:ask1 U:ans1=value([1, 2)",
    "layer_four": "layer: 4\nD:ask1",
    "complete_maybe": "# x\ncomplete: maybe\nD:ask1",
    "said_twice": "layer: 1\nlayer: 2\nD:ask1",
    "not_json": '["D:ask1"',
    "json_without_events": '{"layer": 1}',
    "json_with_another_field": '{"events": [], "layers": 1}',
    "json_layer_true": '{"events": [], "layer": true}',
    "json_event_number": '{"events": ["D:ask1", 2]}',
    "json_two_events": '["D:ask1 D:ask2"]',
    "json_no_event": '["D:ask1", "D:asked"]',
}


@pytest.mark.parametrize("name", BAD)
def test_the_error_reads_as_it_should(name: str) -> None:
    with pytest.raises(BadTrace) as caught:
        read_trace(BAD[name])
    assert_golden(TEXTS / f"{name}.txt", f"{caught.value}\n")


def test_no_text_is_left_without_its_trace() -> None:
    assert {path.stem for path in TEXTS.glob("*.txt")} == set(BAD)


def test_the_place_is_told_to_programs_too() -> None:
    with pytest.raises(BadTrace) as caught:
        parse("D:ask1\n  D:nothing")
    assert (caught.value.line, caught.value.column) == (2, 3)
