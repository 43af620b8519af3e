"""What the rules of a transformer tell apart: traces that differ in little, and the rules that they break."""

from __future__ import annotations

import pytest

from headrace.pull.rules.checker import check
from headrace.pull.rules.trace import parse


def broken(trace: str, *, one_to_one: bool = True) -> list[str]:
    return sorted({violation.rule for violation in check(parse(trace), one_to_one=one_to_one)})


def test_a_stop_that_was_sent_is_waited_for_even_if_an_ask_is_answered_by_the_end_before() -> None:
    early = "D:ask1 TI:ask1 D:abort2 TI:abort2 U:ansT1=done TO:ans1=done TO:ans2=done U:ansT2=done"
    assert broken(early) == ["T4"]


def test_a_stop_that_is_sent_after_the_end_need_not_be_waited_for() -> None:
    late = "D:ask1 TI:ask1 U:ansT1=done TO:ans1=done D:abort2 TI:abort2 TO:ans2=done U:ansT2=done"
    assert broken(late) == []


def test_an_indication_upstream_confirms_nothing() -> None:
    assert broken("D:abort1 TI:done1 TO:ans1=done") == ["T4"]
    assert broken("D:ask1 TI:done1 TO:ans1=done") == [], "but an ask needs no confirmation"


@pytest.mark.parametrize("told", ["abort1", "done1", "error1(F)", "error1", "errorInd1(F)"])
def test_an_error_of_downstream_goes_up_as_the_same_error(told: str) -> None:
    answer = "" if told.startswith(("done", "errorInd")) else " U:ansT1=done"
    assert "T8" in broken(f"D:error1(E) TI:{told}{answer} TO:ans1=done")
    assert broken("D:error1(E) TI:error1(E) U:ansT1=done TO:ans1=done") == []


def test_an_error_without_a_message_is_no_abort() -> None:
    assert broken("D:error1 TI:abort1 U:ansT1=done TO:ans1=done") == ["T8"]
    assert broken("D:error1 TI:error1 U:ansT1=done TO:ans1=done") == []


@pytest.mark.parametrize("one_to_one", [True, False])
def test_an_abort_in_place_of_an_ask_may_go_up_when_downstream_has_failed(one_to_one: bool) -> None:
    replaced = "D:ask1 D:error2(E) TI:abort1 U:ansT1=done TO:ans1=done TO:ans2=done"
    assert broken(replaced, one_to_one=one_to_one) == []
    answered = (
        "D:ask1 TI:ask1 U:ansT1=value(7) TO:ans1=value(7) D:error2(E) TI:abort2 U:ansT2=done TO:ans2=done"
    )
    assert broken(answered, one_to_one=one_to_one) == ["T8"]


def test_a_value_that_fails_beside_an_error_of_downstream_is_told_upstream() -> None:
    fails = "D:ask1 TI:ask1 U:ansT1=value(7) D:error2(E) TI:error2(X) U:ansT2=done"
    assert broken(f"{fails} TO:ans1=error(X) TO:ans2=error(X)") == []


def test_what_downstream_has_failed_may_be_confirmed_by_done() -> None:
    assert broken("D:error1(E) TI:error1(E) U:ansT1=error(E) TO:ans1=done") == []
    assert broken("TI:abort1 D:error1(E) U:ansT1=error(F) TO:ans1=done") == [], "P7 forbids F"
    both = "D:ask1 D:error2(E) TI:ask1 TI:error2(E)"
    own, other = "U:ansT1=error(E) U:ansT2=error(E)", "U:ansT1=error(F) U:ansT2=error(F)"
    assert broken(f"{both} {own} TO:ans1=done TO:ans2=done") == []
    assert broken(f"{both} {other} TO:ans1=done TO:ans2=done") == ["T8"], "it is hidden from the ask"


def test_a_transformer_may_fail_on_a_value_that_it_holds_when_upstream_has_ended() -> None:
    held = "D:ask1 D:ask2 TI:ask1 TI:ask2 U:ansT1=value(7) U:ansT2={} TO:ans1=error(X) TO:ans2=error(X)"
    assert broken(held.format("error(E)")) == broken(held.format("done")) == []


def test_a_transformer_may_fail_by_itself_if_it_tells_upstream() -> None:
    assert broken("D:ask1 TI:ask1 TI:error2(X) U:ansT1=done U:ansT2=done TO:ans1=error(X)") == []


@pytest.mark.parametrize(
    ("upstream", "one_to_one", "rules"),
    [
        ("done", True, ["T8"]),
        ("done", False, []),  # it may have wanted more values
        ("error(E)", True, ["T8"]),
        ("error(E)", False, ["T8"]),
    ],
)
def test_a_transformer_that_holds_nothing_does_not_make_an_error_of_an_end(
    upstream: str, one_to_one: bool, rules: list[str]
) -> None:
    assert broken(f"D:ask1 TI:ask1 U:ansT1={upstream} TO:ans1=error(X)", one_to_one=one_to_one) == rules


def test_a_transformer_that_gathers_values_may_fail_on_them_at_the_end() -> None:
    gathered = (
        "D:ask1 TI:ask1 U:ansT1=value(7) TO:ans1=value(7) D:ask2 TI:ask2 U:ansT2=error(E) TO:ans2=error(X)"
    )
    assert broken(gathered, one_to_one=False) == []
    assert broken(gathered) == ["T8"]


def test_a_value_is_lost_only_for_an_ask_that_was_pending_and_ends_in_its_turn() -> None:
    pending = "D:ask1 TI:ask1 U:ansT1=value(7) D:abort2 TI:abort2 U:ansT2=done TO:ans1=done TO:ans2=done"
    assert broken(pending) == []
    out_of_turn = pending.replace("TO:ans1=done TO:ans2=done", "TO:ans2=done TO:ans1=done")
    assert broken(out_of_turn) == ["T6", "TO.P3"]
    two = "D:ask1 D:ask2 TI:ask1 TI:ask2 U:ansT1=value(7) U:ansT2=value(8) TO:ans1=value(7) TO:ans2=done"
    assert "T6" in broken(f"{two} TI:abort3 U:ansT3=done"), "it was answered before anything stopped"
