"""The checker: which rules it names, where, and on the cases of the systems that Headrace follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.pull.errors import BadTrace
from headrace.pull.rules.checker import PROFILES, check, rules
from headrace.pull.rules.trace import Trace, parse

HOLES: dict[str, set[str]] = {
    # An indication puts the order of answers out of step there, and later requests seem unanswered.
    "done indication then abort, confirmed": {"I2", "I4"},
    "done indication then ask answered done": {"I2", "I4"},
    "ask after done indication gets a value": {"I2", "I4"},
    # After one answer out of order all later requests seem unanswered there.
    "double abort confirmed out of order": {"I2"},
    "source error answered out of order": {"I2"},
    "T: reorders answers of a concurrent abort (old filter bug)": {"TO.I2"},
}
"""Of each case in which `strict` is not the checker that it follows: what that says in addition."""


@pytest.fixture
def cases(shared: Path) -> list[dict[str, Any]]:
    found = json.loads((shared / "conformance" / "pull.json").read_text())
    return [case for case in found if case["kind"] == "trace"]


def trace_of(case: dict[str, Any]) -> Trace:
    return parse(case["events"], layer=case["layer"], complete=case["complete"])


def broken(trace: Trace | str, *arguments: Any, **named: Any) -> list[str]:
    trace = parse(trace) if isinstance(trace, str) else trace
    return sorted({violation.rule for violation in check(trace, *arguments, **named)})


def test_all_labelled_traces_are_judged_as_labelled(cases: list[dict[str, Any]]) -> None:
    assert cases
    for case in cases:
        trace = trace_of(case)
        found = broken(trace)
        assert (found, not found) == (sorted(case["spec_violations"]), case["valid"]), case["name"]
        found = broken(trace, "docs")
        labels = (sorted(case["docs_spec_violations"]), case["valid_docs_spec"])
        assert (found, not found) == labels, case["name"]


def test_strict_is_the_checker_that_it_follows_but_for_its_holes(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        reported = invariants(case["paper_checker"]["strict"])
        assert set(broken(trace_of(case), "strict")) == reported - HOLES.get(case["name"], set()), case[
            "name"
        ]
        assert HOLES.get(case["name"], set()) <= reported, case["name"]


def invariants(reported: list[Any] | dict[str, list[Any]]) -> set[str]:
    """What the other checker reports, as our rules. What it cannot be told, because nothing waits, is I0."""
    if isinstance(reported, dict):
        return {f"{port}.{rule}" for port, numbers in reported.items() for rule in invariants(numbers)}
    return {f"I{number}" if isinstance(number, int) else "I0" for number in reported}


def test_a_violation_tells_the_rule_and_the_two_events() -> None:
    (violation,) = check(parse("D:ask1 U:ans1=done D:ask2 U:ans2=value(7)"))
    assert (violation.rule, violation.at, violation.other_at) == ("P4", 3, 1)
    assert (str(violation.event), str(violation.other)) == ("U:ans2=value(7)", "U:ans1=done")
    assert violation.sentence == rules("spec")["P4"]
    assert str(violation) == "P4 at 4 U:ans2=value(7): a value after done (see 2 U:ans1=done)"


def test_violations_come_in_the_order_of_their_events() -> None:
    trace = parse("D:ask1 U:ans1=done U:ans9=done D:ask2 U:ans2=value(7) D:abort3")
    assert [(violation.rule, violation.at) for violation in check(trace)] == [("P1", 2), ("P4", 4), ("P9", 5)]


def test_the_edge_of_a_transformer_is_named() -> None:
    (violation,) = check(parse("D:ask1 TI:ask1 U:ansT1=done TO:ans1=done TO:ans1=done"))
    assert violation.rule == "TO.P2"
    assert violation.sentence == rules("spec")["P2"]


def test_an_empty_trace_breaks_only_what_demands_an_end() -> None:
    empty = Trace(())
    assert broken(empty) == broken(empty, "docs") == []
    (violation,) = check(empty, "strict")
    assert (violation.rule, violation.at, violation.event) == ("I7", None, None)
    assert str(violation) == "I7: nothing stops or ends the stream"
    assert broken(Trace((), complete=False), "strict") == []


def test_a_trace_that_was_cut_off_may_owe_answers() -> None:
    for text in ("D:ask1", "D:ask1 D:abort2 U:ans1=done", "D:ask1 TI:ask1 D:abort2"):
        cut_off = Trace(parse(text).events, complete=False)
        assert broken(cut_off) == broken(cut_off, "strict") == []
        assert broken(text) != []


def test_a_request_that_was_passed_over_is_told_whether_or_not_the_trace_is_complete() -> None:
    events = parse("D:ask1 D:ask2 U:ans2=value(7)").events
    for complete in (False, True):
        *missing, violation = check(Trace(events, complete=complete))
        assert (violation.rule, violation.at, violation.other_at) == ("P3", 2, 0)
        assert [other.rule for other in missing] == (["P9"] if complete else [])


@pytest.mark.parametrize(
    ("what", "trace"),
    [
        ("a filter", "D:ask1 TI:ask1 U:ansT1=value(1) TI:ask2 U:ansT2=value(2) TO:ans1=value(2)"),
        ("a batch", "D:ask1 TI:ask1 U:ansT1=value(1) TI:ask2 U:ansT2=done TO:ans1=value((1,))"),
        ("a flatten", "D:ask1 TI:ask1 U:ansT1=value((1, 2)) TO:ans1=value(1) D:ask2 TO:ans2=value(2)"),
        ("a default", "D:ask1 TI:ask1 U:ansT1=done TO:ans1=value(0) D:ask2 TO:ans2=done"),
        ("an eager buffer", "TI:ask1 U:ansT1=value(1) TI:ask2 D:ask1 TO:ans1=value(1) U:ansT2=done"),
    ],
)
def test_a_transformer_that_is_not_one_to_one_keeps_the_other_rules(what: str, trace: str) -> None:
    assert broken(trace, one_to_one=False) == [], what
    assert set(broken(trace)) & {"T2", "T3", "T6"}, what


@pytest.mark.parametrize(
    ("rule", "trace"),
    [
        ("T2", "D:ask1 TO:ans1=done TI:abort1 U:ansT1=done"),
        ("T4", "D:abort1 TI:abort1 TO:ans1=done U:ansT1=done"),
        ("T5", "D:ask1 TI:ask1 U:ansT1=value(1) TO:ans1=value(1) D:done2"),
        ("T8", "D:ask1 TI:ask1 U:ansT1=error(E) TO:ans1=done"),
        ("TO.P2", "D:ask1 TI:ask1 U:ansT1=done TO:ans1=done TO:ans1=done"),
    ],
)
def test_a_transformer_that_is_not_one_to_one_still_has_rules(rule: str, trace: str) -> None:
    assert broken(trace, one_to_one=False) == [rule]


def test_a_transformer_that_handles_errors_is_checked_without_the_rule_about_them() -> None:
    caught = "D:ask1 TI:ask1 U:ansT1=error(E) TO:ans1=value(0) D:ask2 TO:ans2=done"
    assert broken(caught, one_to_one=False) == ["T8"]
    assert broken(caught, one_to_one=False, except_for={"T8"}) == []


@pytest.mark.parametrize(
    "trace",
    [
        "D:ask1 TI:ask1 U:ansT1=done TO:ans1=done D:ask2 TO:ans2=done",
        "D:ask1 TI:ask1 U:ansT1=done TO:ans1=done D:abort2 TO:ans2=done",
        "D:ask1 D:ask2 TI:ask1 U:ansT1=error(E) TO:ans1=error(E) TO:ans2=error(E)",
        "D:abort1 D:abort2 TI:abort1 U:ansT1=done TO:ans1=done TO:ans2=done",
        "D:ask1 TI:ask1 U:ansT1=done TO:ans1=done D:done2",
    ],
    ids=["ask", "abort", "error", "second abort", "indication"],
)
def test_once_upstream_has_ended_a_transformer_may_answer_by_itself(trace: str) -> None:
    assert broken(trace) == []


@pytest.mark.parametrize("arguments", [{"profile": "lax"}, {"except_for": {"T7"}}])
def test_a_profile_or_a_rule_that_there_is_not_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(BadTrace) as caught:
        check(Trace(()), **arguments)
    assert caught.value.fix


def test_numbers_and_sentences_are_one_list() -> None:
    numbers = [number for profile in PROFILES for number in rules(profile)]
    shared = ["W1"] * (len(PROFILES) - 1)
    assert sorted(numbers) == sorted([*set(numbers), *shared])
    assert len(set(numbers)) == 13 + 6 + 8 + 8
    assert all(text.endswith(".") for profile in PROFILES for text in rules(profile).values())
