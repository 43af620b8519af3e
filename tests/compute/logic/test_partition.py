"""Partitions: several workers say together what one would say."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.compute.errors import ResultTooLarge, TotalResultTooLarge, error_of
from headrace.compute.frontier import END, START, Frontier, meet
from headrace.compute.protocol.commands import CreateTimely, Parameters, UpdateConfiguration
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    CopyToResponse,
    Counted,
    Dropped,
    DroppedAt,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    RowCount,
    RowsResponse,
    Stashed,
    Status,
    SubscribeResponse,
    Update,
)
from headrace.compute.replica.workers.responses import MergedStash, ResponseMerger, choose_reading_worker
from headrace.errors import Origin
from headrace.expr.types import Row
from tests.golden import MESSAGES, assert_golden

seeds = st.integers(0, 2**32).map(random.Random)
WORKERS = 3
UUID = bytes(16)


def size(row: Row) -> int:
    return sum(len(str(value)) for value in row)


def partitioned(limit: int | None = None, parts: int = WORKERS) -> ResponseMerger:
    return ResponseMerger(parts, size, limit)


def interleaved(chance: random.Random, said: Sequence[Sequence[Response]]) -> list[tuple[int, Response]]:
    """What the workers say, each in its order, mixed."""
    order = [part for part, responses in enumerate(said) for _ in responses]
    chance.shuffle(order)
    rest = [iter(responses) for responses in said]
    return [(part, next(rest[part])) for part in order]


def absorbed(merged: ResponseMerger, said: list[tuple[int, Response]]) -> list[Response]:
    return [response for part, r in said if (response := merged.merge_response(part, r)) is not None]


def batches(chance: random.Random, updates: list[Update], end: Frontier) -> list[Response]:
    """The updates of one worker, in batches cut at random times."""
    cuts = sorted(chance.sample(range(1, 20), k=chance.randrange(5)))
    uppers = [*(Frontier(cut) for cut in cuts), end]
    lowers = [START, *uppers]
    return [
        SubscribeResponse(
            "t1",
            BatchResponse(a, b, tuple(u for u in updates if not a.has_passed(u[1]) and b.has_passed(u[1]))),
        )
        for a, b in zip(lowers, uppers, strict=False)
    ]


def events(responses: list[Response]) -> list[BatchResponse]:
    found = [r.event for r in responses if isinstance(r, SubscribeResponse)]
    return [event for event in found if isinstance(event, BatchResponse)]


def changes(batch: BatchResponse) -> tuple[Update, ...]:
    assert not isinstance(batch.updates, Problem)
    return batch.updates


@given(seeds)
def test_a_subscription_in_parts_is_the_subscription(chance: random.Random) -> None:
    whole = [((chance.choice("abc"),), chance.randrange(20), chance.choice((1, -1))) for _ in range(20)]
    parts: list[list[Update]] = [[] for _ in range(WORKERS)]
    for change in whole:
        parts[chance.randrange(WORKERS)].append(change)
    merged = partitioned()
    said = interleaved(chance, [batches(chance, part, END) for part in parts])
    found = events(absorbed(merged, said))
    assert [found[0].lower, found[-1].upper] == [START, END]
    assert all(a.upper == b.lower for a, b in itertools.pairwise(found))
    assert all(batch.lower < batch.upper for batch in found)
    assert all(
        not batch.lower.has_passed(time) and batch.upper.has_passed(time)
        for batch in found
        for _, time, _ in changes(batch)
    )
    assert total([u for batch in found for u in changes(batch)]) == total(whole)
    for batch in found:
        assert len({(row, time) for row, time, _ in changes(batch)}) == len(changes(batch))
        assert all(weight for _, _, weight in changes(batch))
    assert merged.tracked_count == 0


def total(updates: list[Update]) -> dict[tuple[Row, int], int]:
    sums = Counter[tuple[Row, int]]()
    for row, time, weight in updates:
        sums[row, time] += weight
    return {key: weight for key, weight in sums.items() if weight}


@given(seeds)
def test_frontiers_in_parts_are_those_of_the_slowest_and_rise(chance: random.Random) -> None:
    said: list[list[Response]] = []
    for _ in range(WORKERS):
        times = sorted(chance.sample(range(1, 20), k=4))
        told = [
            Frontiers("u1", *(Frontier(t) if chance.random() < 0.7 else None for _ in range(3)))
            for t in times
        ]
        said.append([*told, Frontiers("u1", END, END, END)])
    merged, last = partitioned(), {"write": START, "input": START, "output": START}
    of_part = {kind: [START] * WORKERS for kind in last}
    for part, response in interleaved(chance, said):
        assert isinstance(response, Frontiers)
        found = merged.merge_response(part, response)
        for kind in last:
            told_now = getattr(response, kind)
            of_part[kind][part] = max(of_part[kind][part], told_now or START)
            together = meet(of_part[kind])
            new = None if found is None else getattr(found, kind)
            assert new == (together if together > last[kind] else None)
            last[kind] = together
    assert set(last.values()) == {END}
    assert merged.tracked_count == 0


@given(seeds)
def test_a_peek_in_parts_has_all_rows_with_their_counts(chance: random.Random) -> None:
    rows = [[((chance.randrange(5),), chance.randrange(1, 4)) for _ in range(4)] for _ in range(WORKERS)]
    answers: list[list[Response]] = [[PeekResponse(UUID, RowsResponse(tuple(part)))] for part in rows]
    (found,) = absorbed(partitioned(), interleaved(chance, answers))
    assert isinstance(found, PeekResponse)
    assert isinstance(found.answer, RowsResponse)
    assert dict(found.answer.rows) == counted([r for part in rows for r in part])
    assert len(dict(found.answer.rows)) == len(found.answer.rows)


def counted(rows: list[Counted]) -> dict[Row, int]:
    sums = Counter[Row]()
    for row, count in rows:
        sums[row] += count
    return dict(sums)


def test_too_much_together_comes_before_another_problem_in_every_order() -> None:
    one: RowsResponse = RowsResponse((((7,), 1),))
    other = Problem("P735", "it is gone")
    for answers in itertools.permutations((one, other, one)):
        merged = partitioned(limit=1)
        said: list[tuple[int, Response]] = [(n, PeekResponse(UUID, a)) for n, a in enumerate(answers)]
        assert problem_codes(absorbed(merged, said)) == [TotalResultTooLarge.code]


def test_a_worker_whose_own_rows_are_too_many_says_so_for_all() -> None:
    alone = Problem(ResultTooLarge.code, "too many bytes")
    other = Problem("P735", "it is gone")
    said: list[tuple[int, Response]] = [
        (n, PeekResponse(UUID, a)) for n, a in enumerate((other, alone, RowsResponse(())))
    ]
    assert problem_codes(absorbed(partitioned(), said)) == [ResultTooLarge.code]


def problem_codes(responses: list[Response]) -> list[str]:
    answers = [r.answer for r in responses if isinstance(r, PeekResponse)]
    return [answer.code for answer in answers if isinstance(answer, Problem)]


def test_the_problem_of_one_is_that_of_all_in_a_peek_and_a_copy() -> None:
    problem = Problem("P736", "it failed")
    peeks: list[tuple[int, Response]] = [
        (n, PeekResponse(UUID, a)) for n, a in enumerate((RowsResponse(()), problem, RowsResponse(())))
    ]
    assert absorbed(partitioned(), peeks) == [PeekResponse(UUID, problem)]
    copies: list[tuple[int, Response]] = [
        (n, CopyToResponse("t1", a)) for n, a in enumerate((RowCount(1), problem, RowCount(2)))
    ]
    assert absorbed(partitioned(), copies) == [CopyToResponse("t1", problem)]


def test_what_goes_back_at_one_worker_changes_nothing() -> None:
    merged = partitioned(parts=2)
    said: list[tuple[int, Response]] = [
        (0, Frontiers("u1", write=Frontier(9))),
        (0, Frontiers("u1", write=Frontier(4))),
        (1, Frontiers("u1", write=Frontier(6))),
    ]
    assert absorbed(merged, said) == [Frontiers("u1", write=Frontier(6))]


def test_as_many_bytes_as_allowed_are_allowed() -> None:
    rows = RowsResponse((((7,), 1),))
    said: list[tuple[int, Response]] = [(n, PeekResponse(UUID, rows)) for n in range(WORKERS)]
    assert absorbed(partitioned(limit=3), said) == [PeekResponse(UUID, RowsResponse((((7,), 3),)))]
    assert problem_codes(absorbed(partitioned(limit=2), said)) == [TotalResultTooLarge.code]


def test_a_copy_that_was_dropped_at_one_worker_is_dropped() -> None:
    said: list[tuple[int, Response]] = [
        (0, CopyToResponse("t1", Problem("P736", "it failed"))),
        (1, CopyToResponse("t1", Dropped())),
    ]
    assert absorbed(partitioned(parts=2), said) == [CopyToResponse("t1", Dropped())]


def test_of_a_dropped_subscription_nothing_more_is_told() -> None:
    merged = partitioned(parts=2)
    said: list[tuple[int, Response]] = [
        (0, SubscribeResponse("t1", BatchResponse(START, Frontier(5), ()))),
        (1, SubscribeResponse("t1", BatchResponse(START, Frontier(5), ()))),
        (0, SubscribeResponse("t1", DroppedAt(Frontier(5)))),
        (1, SubscribeResponse("t1", BatchResponse(Frontier(5), Frontier(9), ((("a",), 6, 1),)))),
        (1, SubscribeResponse("t1", DroppedAt(Frontier(9)))),
    ]
    assert absorbed(merged, said) == [
        SubscribeResponse("t1", BatchResponse(START, Frontier(5), ())),
        SubscribeResponse("t1", DroppedAt(Frontier(5))),
    ]
    assert merged.tracked_count == 0


def test_the_first_problem_of_a_subscription_stays_the_one_that_is_told() -> None:
    merged, first, second = partitioned(parts=2), Problem("P736", "first"), Problem("P736", "second")
    said: list[tuple[int, Response]] = [
        (0, SubscribeResponse("t1", BatchResponse(START, END, first))),
        (1, SubscribeResponse("t1", BatchResponse(START, END, second))),
    ]
    assert [b.updates for b in events(absorbed(merged, said))] == [first]


def test_a_stash_of_one_worker_holds_the_rows_at_hand_of_the_others() -> None:
    merged = partitioned()
    stash = Stashed(b"s" * 16, rows=100, size=1000, inline=(((1,), 1),))
    said: list[tuple[int, Response]] = [
        (0, PeekResponse(UUID, RowsResponse((((2,), 1),)))),
        (1, PeekResponse(UUID, stash)),
        (2, PeekResponse(UUID, RowsResponse(()))),
    ]
    (found,) = absorbed(merged, said)
    assert found == PeekResponse(UUID, Stashed(UUID, 101, 1001, (((2,), 1), ((1,), 1))))
    assert merged.take_stash(UUID) == MergedStash((((2,), 1),), {1: b"s" * 16})
    assert merged.take_stash(UUID) is None


def test_a_problem_of_one_worker_ends_the_updates_of_a_subscription_for_good() -> None:
    merged, problem = partitioned(parts=2), Problem("P736", "it failed")
    said: list[tuple[int, Response]] = [
        (0, SubscribeResponse("t1", BatchResponse(START, Frontier(5), problem))),
        (1, SubscribeResponse("t1", BatchResponse(START, Frontier(7), ((("a",), 3, 1),)))),
        (0, SubscribeResponse("t1", BatchResponse(Frontier(5), END, ((("b",), 8, 1),)))),
        (1, SubscribeResponse("t1", BatchResponse(Frontier(7), END, ()))),
    ]
    assert [(b.upper, b.updates) for b in events(absorbed(merged, said))] == [
        (Frontier(5), problem),
        (Frontier(7), problem),
        (END, problem),
    ]


def test_changes_that_wait_for_a_slow_worker_are_bounded() -> None:
    merged = partitioned(limit=3, parts=2)
    for time in range(10):
        batch = BatchResponse(Frontier(time), Frontier(time + 1), ((("a",), time, 1),))
        assert merged.merge_response(0, SubscribeResponse("t1", batch)) is None
    (found,) = events(
        absorbed(merged, [(1, SubscribeResponse("t1", BatchResponse(START, Frontier(10), ())))])
    )
    assert isinstance(found.updates, Problem)
    assert found.updates.code == TotalResultTooLarge.code
    assert_golden(MESSAGES / "total_result_too_large.txt", f"{error_of(found.updates)}\n")


def test_what_has_been_delivered_does_not_count_against_the_limit() -> None:
    merged = partitioned(limit=3, parts=2)
    for time in range(10):
        batch = BatchResponse(Frontier(time), Frontier(time + 1), ((("a",), time, 1),))
        found = absorbed(merged, [(n, SubscribeResponse("t1", batch)) for n in range(2)])
        assert [b.updates for b in events(found)] == [((("a",), time, 2),)]


def test_another_connection_begins_with_nothing_but_the_limit() -> None:
    merged = partitioned(parts=2)
    merged.observe(UpdateConfiguration(Parameters(max_result_size=1)))
    merged.observe(UpdateConfiguration(Parameters(maintenance_interval=1)))
    merged.merge_response(0, PeekResponse(UUID, RowsResponse(())))
    merged.merge_response(0, Frontiers("u1", write=Frontier(9)))
    merged.merge_response(0, SubscribeResponse("t1", BatchResponse(START, Frontier(5), ())))
    merged.merge_response(0, CopyToResponse("t2", RowCount(1)))
    assert merged.tracked_count == 4
    merged.observe(CreateTimely())
    assert merged.tracked_count == 0
    assert merged.max_result_size == 1
    assert absorbed(merged, [(n, PeekResponse(UUID, Canceled())) for n in range(2)]) == [
        PeekResponse(UUID, Canceled())
    ]


def test_what_is_merged_begins_with_the_first_response_and_ends_with_the_last() -> None:
    merged = partitioned(parts=2)
    said: list[tuple[int, Response]] = [
        (0, Frontiers("u1", END, END, END)),
        (1, Frontiers("u1", END, END, END)),
        (1, SubscribeResponse("t1", DroppedAt(START))),
        (0, SubscribeResponse("t1", DroppedAt(START))),
        (0, CopyToResponse("t2", Dropped())),
        (1, CopyToResponse("t2", RowCount(4))),
        (0, PeekResponse(UUID, RowsResponse(()))),
        (1, PeekResponse(UUID, RowsResponse(()))),
    ]
    assert len(absorbed(merged, said)) == 4
    assert merged.tracked_count == 0


def test_what_a_worker_sees_of_itself_passes() -> None:
    assert partitioned().merge_response(1, Status(None, "memory")) == Status(None, "memory")


@pytest.mark.parametrize("twice", [PeekResponse(UUID, RowsResponse(())), CopyToResponse("t1", RowCount(1))])
def test_a_worker_that_answers_twice_is_a_bug(twice: Response) -> None:
    merged = partitioned()
    merged.merge_response(0, twice)
    with pytest.raises(AssertionError, match="worker 0"):
        merged.merge_response(0, twice)


def test_a_durable_collection_is_read_by_one_worker_and_each_gets_its_share() -> None:
    readers = [choose_reading_worker(number.to_bytes(16, "big"), 4) for number in range(1000)]
    assert readers == [choose_reading_worker(number.to_bytes(16, "big"), 4) for number in range(1000)]
    assert min(Counter(readers).values()) > 150


def test_what_every_replica_would_say_comes_before_how_a_worker_is_in_every_order() -> None:
    data = Problem("P733", "a row less than zero times")
    unwell = Problem("P741", "no room on the disk", origin=Origin.PROCESS)
    for problems in itertools.permutations((data, unwell, unwell)):
        peeks: list[tuple[int, Response]] = [(n, PeekResponse(UUID, p)) for n, p in enumerate(problems)]
        assert absorbed(partitioned(), peeks) == [PeekResponse(UUID, data)]
        copies: list[tuple[int, Response]] = [(n, CopyToResponse("t1", p)) for n, p in enumerate(problems)]
        assert absorbed(partitioned(), copies) == [CopyToResponse("t1", data)]
        batches: list[tuple[int, Response]] = [
            (n, SubscribeResponse("t1", BatchResponse(START, Frontier(5), p))) for n, p in enumerate(problems)
        ]
        (told,) = events(absorbed(partitioned(), batches))
        assert told.updates == data
