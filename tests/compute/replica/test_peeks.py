"""Peeks: one answer each, of the rows at their time, whatever else happens meanwhile."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace import col
from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.errors import (
    BadMessage,
    BadPlan,
    ComputeError,
    OutOfMemory,
    ResultGone,
    ResultTooLarge,
    SinceViolation,
    StoreUnavailable,
    UnknownName,
    error_of,
)
from headrace.compute.frontier import Frontier
from headrace.compute.plans import encode_expr
from headrace.compute.protocol.commands import (
    AllowCompaction,
    CancelPeek,
    Finishing,
    Parameters,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import Canceled, PeekResponse, RowsResponse, Stashed
from headrace.compute.replica import peeks
from headrace.compute.replica.in_process import arrangement
from headrace.compute.replica.in_process.arrangement import TimedArrangement
from headrace.compute.replica.peek_finishing import RUN, peek_finisher
from headrace.errors import Origin
from tests.compute.replica.flows import BID, all_bids
from tests.compute.replica.rig import Bag, Rig, bag, problem
from tests.golden import MESSAGES, assert_golden

MANY = [((f"i{n}", n), 3, 1) for n in range(6000)]
LOTS = [*MANY, *(((f"j{n}", n), 3, 1) for n in range(20_000))]


def bids(*updates: Any, key: Any = ("item",), **options: Any) -> Rig:
    """An index of bids from time 5 on, settled before 10."""
    rig = Rig(**options).connect().collection("s1", BID, *updates, upper=10)
    rig.index("u1", all_bids(), key, as_of=5).run()
    return rig


def test_a_keyed_peek_is_answered_in_the_step_that_follows() -> None:
    rig = bids(*MANY)
    asked = rig.ask("u1", 7, [("i7",), ("i11",), ("i7",), ("none",)])
    rig.step()
    assert rig.answer(asked) == RowsResponse(((("i7", 7), 1), (("i11", 11), 1)))


def test_a_peek_waits_until_its_time_is_settled() -> None:
    rig = bids((("a", 1), 3, 1))
    asked = rig.ask("u1", 10, [("a",)])
    rig.run()
    assert rig.answer(asked) is None
    rig.write("s1", (("a", 1), 10, 1), upper=11).run()
    assert rig.answer(asked) == RowsResponse(((("a", 1), 2),))


def test_below_the_since_is_an_error() -> None:
    rig = bids()
    rig.tell(AllowCompaction("u1", Frontier(8)))
    found = problem(rig.peek("u1", 7), SinceViolation)
    assert found.time == 7
    assert "[8]" in found.message
    assert rig.rows("u1", 8) == Bag()


def test_a_peek_that_was_accepted_is_not_hurt_by_compaction() -> None:
    rig = bids((("a", 1), 3, 1))
    early, waiting = rig.ask("u1", 7), rig.ask("u1", 12)
    rig.write("s1", (("a", 1), 9 + 1, -1), (("b", 1), 13, 1), upper=20)
    rig.tell(AllowCompaction("u1", Frontier(19))).run()
    assert bag(rig.answer(early).rows) == Bag({("a", 1): 1})
    assert bag(rig.answer(waiting).rows) == Bag()
    assert rig.rows("u1", 19) == Bag({("b", 1): 1})


def test_a_peek_that_waits_for_an_index_that_is_dropped_is_an_error_and_never_rows() -> None:
    rig = bids((("a", 1), 3, 1))
    waiting = rig.ask("u1", 12)
    rig.drop("u1").run()
    problem(rig.answer(waiting), UnknownName)


def test_one_that_reads_it_already_has_all_its_rows() -> None:
    rig = bids(*MANY)
    asked = rig.ask("u1", 7)
    rig.step()
    rig.drop("u1").run()
    assert len(rig.answer(asked).rows) == len(MANY)


class Overdrawn(MemoryCollections):
    """A store that tells of a row that goes and was not there."""

    def snapshot(self, id: str, at: int, chunk: int = 10_000) -> Any:
        yield [(("a", 1), -1), (("b", 1), 1)]


def test_a_row_with_negative_multiplicity_is_held_back() -> None:
    rig = Rig(store=Overdrawn()).connect().collection("s1", BID, upper=10).index("u1", all_bids(), as_of=5)
    assert rig.rows("u1", 7) == rig.rows("u1", 7, [("b", 1)]) == Bag({("b", 1): 1})
    assert rig.rows("u1", 7, [("a", 1)]) == Bag()
    rig.write("s1", (("a", 1), 12, 2), upper=20).run()
    assert rig.rows("u1", 12) == Bag({("a", 1): 1, ("b", 1): 1})


def test_a_cancelled_peek_is_answered_so_at_once_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrangement, "SCANNED", 100)
    rig = bids(*MANY)
    waiting, scanning = rig.ask("u1", 100), rig.ask("u1", 7)
    rig.step()
    rig.tell(CancelPeek(waiting), CancelPeek(scanning)).step()
    assert rig.answer(waiting) == rig.answer(scanning) == Canceled()
    rig.write("s1", upper=200).run()
    assert len([r for r in rig.said if isinstance(r, PeekResponse)]) == 2


def test_cancelling_what_is_answered_says_nothing() -> None:
    rig = bids()
    asked = rig.ask("u1", 7, [("a",)])
    rig.run()
    rig.tell(CancelPeek(asked))
    assert rig.run() == []
    assert rig.answer(asked) == RowsResponse(())


def test_nothing_is_cancelled_that_nobody_cancels() -> None:
    rig = bids(*MANY)
    asked = [rig.ask("u1", 7), rig.ask("u1", 12), rig.ask("u1", 7, [("i1",)])]
    rig.write("s1", upper=20)
    rig.tell(AllowCompaction("u1", Frontier(15))).run()
    assert all(isinstance(rig.answer(uuid), RowsResponse) for uuid in asked)


def test_a_scan_does_not_see_what_changes_meanwhile() -> None:
    rig = bids(*MANY)
    asked = rig.ask("u1", 9)
    for n in range(40):
        rig.step()
        rig.write("s1", ((f"i{n * 100}", n * 100), 10 + n, -1), ((f"new{n}", n), 10 + n, 1), upper=11 + n)
        rig.tell(AllowCompaction("u1", Frontier(10 + n)))
    rig.run()
    assert bag(rig.answer(asked).rows) == Counter({row: 1 for row, _, _ in MANY})


def test_a_scan_does_not_hold_up_frontiers_or_other_peeks() -> None:
    rig = bids(*LOTS)
    scan = rig.ask("u1", 9)
    rig.step()
    rig.write("s1", (("a", 1), 10, 1), upper=11)
    quick = rig.ask("u1", 10, [("a",)])
    for _ in range(3):
        rig.step()
        rig.now += 100
    assert rig.answer(quick) == RowsResponse(((("a", 1), 1),))
    assert rig.write_frontier("u1") == Frontier(11)
    assert rig.answer(scan) is None


def test_a_condition_is_asked_of_each_row() -> None:
    rig = bids(*MANY)
    condition = encode_expr(col.price < 3, BID)
    assert rig.rows("u1", 7, predicate=condition) == Bag({("i0", 0): 1, ("i1", 1): 1, ("i2", 2): 1})
    assert rig.rows("u1", 7, [("i2",), ("i5",)], predicate=condition) == Bag({("i2", 2): 1})
    problem(rig.peek("u1", 7, predicate=b"nonsense"), BadPlan)


def test_keys_must_be_as_wide_as_the_key() -> None:
    problem(bids().peek("u1", 7, [("a", 1)]), BadMessage)


FLOATS = [float("nan"), 0.0, -0.0, None, 1.5]


def test_keys_are_equal_as_the_engine_groups_them() -> None:
    import headrace as hr
    from headrace.expr.code_runtime import NAN
    from tests.compute.replica.flows import Measured

    flow = hr.Flow("floats")
    flow.sink("out", flow.table("s1", Measured))
    rig = Rig().connect()
    updates = [((NAN, 1), 3, 1), ((0.0, 2), 3, 1), ((-0.0, 3), 3, 1), ((None, 4), 3, 1), ((1.5, 5), 3, 1)]
    rig.collection("s1", flow.graph().nodes[0].schema, *updates, upper=10)
    rig.index("u1", flow, ["at"], as_of=5).run()
    found = [{row[1] for row in rig.rows("u1", 7, [(value,)])} for value in FLOATS]
    assert found == [{1}, {2, 3}, {2, 3}, {4}, {5}]


# --- how a peek ends ---------------------------------------------------------------------


def test_a_peek_may_be_ordered_cut_and_projected() -> None:
    rig = bids(*((("a", n), 3, 2) for n in range(9)), (("b", 4), 3, 1))
    ending = Finishing(order_by=((1, True), (0, False)), limit=4, offset=7, project=(1,))
    answer = rig.peek("u1", 7, finishing=ending)
    # 8 8 7 7 6 6 5 | 5 a4 a4 b4
    assert answer == RowsResponse((((5,), 1), ((4,), 2), ((4,), 1)))


def test_all_rows_in_an_order() -> None:
    rig = bids(*MANY)
    answer = rig.peek("u1", 7, finishing=Finishing(order_by=((1, True),), offset=5))
    assert [row[1] for row, _ in answer.rows] == list(range(len(MANY) - 6, -1, -1))


def test_a_limit_without_an_order_stops_early() -> None:
    finish = peek_finisher(Finishing(limit=7, offset=3), BID)
    parts = iter([[((f"i{at}", n), 1) for n in range(5)] for at in range(200)])
    taken = 0
    for part in parts:
        taken += len(part)
        if not finish.add_rows(part):
            break
    assert sum(len(part) for part in finish.rows()) == 7
    assert taken <= 20
    assert finish.held <= 20


def test_a_limit_with_an_order_keeps_twice_as_many_rows_at_most() -> None:
    finish = peek_finisher(Finishing(order_by=((1, False),), limit=8, offset=2), BID)
    for n in range(1000):
        assert finish.add_rows([(("a", n * 7919 % 1000), 1)])
    rows = [row for part in finish.rows() for row, _ in part]
    assert [row[1] for row in rows] == list(range(2, 10))
    assert finish.held <= 20


def test_a_large_offset_into_an_order_is_skipped_a_part_at_a_time() -> None:
    finish = peek_finisher(Finishing(order_by=((1, False),), limit=10, offset=50_000), BID)
    finish.add_rows([(("a", n), 2) for n in range(50_000)])
    parts = list(finish.rows())
    assert [counted for part in parts for counted in part] == [(("a", n), 2) for n in range(25_000, 25_005)]
    assert len(parts) == 25_005 // RUN + 1


def test_a_column_that_is_not_there_is_an_error() -> None:
    problem(bids().peek("u1", 7, finishing=Finishing(project=(5,))), BadMessage)


# --- mistakes of ours ---------------------------------------------------------------------


def broken(*_: object) -> bool:
    raise ValueError("nobody thought of it")


@pytest.mark.parametrize("when", ["compiled", "run"])
def test_a_condition_that_nobody_foresaw_to_fail_fails_its_own_peek_only(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = bids((("a", 1), 3, 1))
    monkeypatch.setattr(rig.plans, "predicate", broken if when == "compiled" else lambda *_: broken)
    failing, other = rig.ask("u1", 7, predicate=encode_expr(col.price > 0, BID)), rig.ask("u1", 7)
    rig.run()
    found = rig.answer(failing)
    assert problem(found, ComputeError).message == "ValueError: nobody thought of it"
    assert (found.id, found.time, found.origin) == ("u1", 7, Origin.PROCESS)
    assert bag(rig.answer(other).rows) == rig.rows("u1", 7) == Bag({("a", 1): 1})


def test_a_look_up_that_nobody_foresaw_to_fail_fails_its_own_peek_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = bids((("a", 1), 3, 1))
    with monkeypatch.context() as patch:
        patch.setattr(TimedArrangement, "rows_at", broken)
        assert problem(rig.peek("u1", 7, [("a",)]), ComputeError).origin is Origin.PROCESS
    assert bag(rig.peek("u1", 7, [("a",)]).rows) == Bag({("a", 1): 1})


# --- large results -----------------------------------------------------------------------


def limits(**parameters: int) -> UpdateConfiguration:
    return UpdateConfiguration(Parameters(**parameters))


def test_a_result_above_the_limit_is_an_error() -> None:
    rig = bids(*MANY)
    rig.tell(limits(max_result_size=1000))
    found = problem(rig.peek("u1", 7), ResultTooLarge)
    assert_golden(MESSAGES / "result_too_large.txt", f"{error_of(found)}\n")
    assert len(rig.peek("u1", 7, [(f"i{n}",) for n in range(20)]).rows) == 20
    problem(rig.peek("u1", 7, [(f"i{n}",) for n in range(60)]), ResultTooLarge)


def test_settings_apply_to_peeks_that_are_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrangement, "SCANNED", 100)
    rig = bids(*MANY)
    waiting, scanning = rig.ask("u1", 10), rig.ask("u1", 7)
    rig.step()
    rig.tell(limits(max_result_size=1))
    rig.write("s1", upper=20).run()
    problem(rig.answer(waiting), ResultTooLarge)
    problem(rig.answer(scanning), ResultTooLarge)


def test_a_large_result_waits_in_a_file_until_it_is_fetched(tmp_path: Path) -> None:
    rig = bids(*MANY, folder=tmp_path)
    rig.tell(limits(peek_stash_size=5000))
    answer = rig.peek("u1", 7, finishing=Finishing(order_by=((1, False),)))
    assert isinstance(answer, Stashed)
    assert answer.rows == len(MANY)
    assert answer.inline == tuple((row, 1) for row, _, _ in MANY[: len(answer.inline)])
    rows = [row for part in rig.replica.fetch(answer.token) for row, _ in part]
    assert rows == [row for row, _, _ in MANY]
    assert not list(tmp_path.rglob("*.rows"))
    with pytest.raises(ResultGone):
        rig.replica.fetch(answer.token)


def test_nobody_finds_a_large_result_after_ten_minutes_or_a_restart(tmp_path: Path) -> None:
    rig = bids(*MANY, folder=tmp_path)
    rig.tell(limits(peek_stash_size=5000))
    first = rig.peek("u1", 7)
    rig.now += 600_001
    rig.run()
    with pytest.raises(ResultGone):
        rig.replica.fetch(first.token)
    second = rig.peek("u1", 7)
    again = Rig(folder=tmp_path).connect()
    assert not list(tmp_path.rglob("*.rows"))
    with pytest.raises(ResultGone):
        again.replica.fetch(second.token)


def test_a_large_result_that_is_cancelled_or_cut_off_leaves_no_file(tmp_path: Path) -> None:
    rig = bids(*LOTS, folder=tmp_path)
    rig.tell(limits(peek_stash_size=5000))
    asked = rig.ask("u1", 7)
    while not list(tmp_path.rglob("*.rows")):
        rig.step()
    rig.tell(CancelPeek(asked))
    assert not list(tmp_path.rglob("*.rows"))
    rig.ask("u1", 7)
    while not list(tmp_path.rglob("*.rows")):
        rig.step()
    rig.replica.end_connection()
    assert not list(tmp_path.rglob("*.rows"))


@pytest.mark.parametrize("rows", [500, 20_000])
def test_a_large_result_for_which_there_is_no_room_is_a_problem(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peeks, "token_bytes", bytes)
    (tmp_path / "stash").mkdir()
    rig = bids(*LOTS[:rows], folder=tmp_path)
    (tmp_path / "stash" / f"{bytes(16).hex()}.rows").symlink_to("/dev/full")
    rig.tell(limits(peek_stash_size=1))
    problem(rig.peek("u1", 7), StoreUnavailable)
    assert not list(tmp_path.rglob("*.rows"))
    (tmp_path / "stash").rmdir()
    (tmp_path / "stash").write_text("in the way")
    problem(rig.peek("u1", 7), StoreUnavailable)


# --- collections -------------------------------------------------------------------------


def test_a_collection_is_read_from_its_store() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 1), 3, 2), (("b", 2), 4, 1), upper=10)
    assert rig.rows("s1", 9) == Bag({("a", 1): 2, ("b", 2): 1})
    assert rig.rows("s1", 3, predicate=encode_expr(col.price < 2, BID)) == Bag({("a", 1): 2})
    assert rig.rows("s1", 9, [("b", 2)]) == Bag({("b", 2): 1})
    waiting = rig.ask("s1", 10)
    rig.run()
    assert rig.answer(waiting) is None
    rig.write("s1", (("b", 2), 10, -1), upper=11).run()
    assert rig.answer(waiting) == RowsResponse(((("a", 1), 2),))
    rig.store.compact("s1", Frontier(10))
    rig.run()
    problem(rig.peek("s1", 9), SinceViolation)
    problem(rig.peek("s9", 9), UnknownName)


def test_a_replica_without_the_memory_for_an_answer_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = bids(*MANY)

    def too_little(_: object) -> int:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(peeks, "rows_size", too_little)
        found = problem(rig.peek("u1", 7), OutOfMemory)
    assert found.origin is Origin.PROCESS
    assert_golden(MESSAGES / "out_of_memory.txt", f"{error_of(found)}\n")
    assert rig.rows("u1", 7) == Bag({row: 1 for row, _, _ in MANY})


def test_a_large_result_that_cannot_be_read_is_gone(tmp_path: Path) -> None:
    rig = bids(*MANY, folder=tmp_path)
    rig.tell(limits(peek_stash_size=5000))
    answer = rig.peek("u1", 7)
    (file,) = tmp_path.rglob("*.rows")
    file.unlink()
    file.mkdir()
    with pytest.raises(ResultGone) as error:
        list(rig.replica.fetch(answer.token))
    text = re.sub(r"'/.*'", "FILE", f"{error.value}\n")
    assert_golden(MESSAGES / "result_gone.txt", text)
