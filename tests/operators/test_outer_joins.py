"""Right and full joins by example, and against all pairs of a nested loop."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import left, right
from headrace.errors import WrongType
from headrace.testing import Backend, check_ticks

AnyStream = hr.Stream[Any, Any, Any, Any]


class Due(NamedTuple):
    name: str | None
    amount: int


class Paid(NamedTuple):
    name: str | None
    paid: int


def joined(how: str, **options: Any) -> Any:
    def build(flow: hr.Flow) -> AnyStream:
        due, paid = flow.table("due", Due), flow.table("paid", Paid)
        return due.join(paid, on="name", how=how, **options)  # type: ignore[call-overload]

    return build


def test_a_right_join_keeps_every_right_row(backend: Backend) -> None:
    check_ticks(
        backend,
        joined("right"),
        """
        tick | due            | paid          | out
        1    | ann 3          | bob 5; null 7 | + bob null 5; + null null 7
        2    | bob 4; null 2  | bob 5         | +2 bob 4 5; - bob null 5
        3    | - bob 4; bob 6 | - bob 5       | + bob 6 5; -2 bob 4 5
        4    | - bob 6        | - null 7      | - bob 6 5; + bob null 5; - null null 7
    """,
    )


def test_a_full_join_keeps_every_row_of_both(backend: Backend) -> None:
    check_ticks(
        backend,
        joined("full"),
        """
        tick | due            | paid            | out
        1    | ann 3; null 1  | bob 5           | + ann 3 null; + null 1 null; + bob null 5
        2    | bob 4          |                 | + bob 4 5; - bob null 5
        3    | - bob 4        | ann 8           | - bob 4 5; + bob null 5; - ann 3 null; + ann 3 8
        4    | - null 1       | - bob 5; null 2 | - null 1 null; - bob null 5; + null null 2
    """,
    )


def test_rows_of_a_tick_beside_all_that_there_are(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        due, paid = flow.source("due", Due), flow.source("paid", Paid)
        why = "what is paid today is looked up among all that is due"
        return due.join(paid, on="name", how="right", lifetime=("static", "tick"), nondet=why)

    check_ticks(
        backend,
        build,
        """
        tick | due   | paid         | out
        1    | ann 3 | ann 1; bob 2 | + ann 3 1; + bob null 2
        2    | bob 4 |              |
        3    |       | bob 2        | + bob 4 2
    """,
    )


@pytest.mark.parametrize("how", ["right", "full"])
def test_keys_of_two_names_are_two_columns(how: Any) -> None:
    class Other(NamedTuple):
        who: str
        amount: int

    flow = hr.Flow("two")
    due, other = flow.source("due", Due), flow.source("other", Other)
    both = due.join(other, on=left.name == right.who, how=how, suffix="_other")
    nullable = {field.name: field.nullable for field in both.schema.fields}
    full = how == "full"
    assert nullable == {"name": True, "amount": True, "who": full, "amount_other": full}


def test_a_key_of_one_name_is_there_whichever_row_is() -> None:
    class One(NamedTuple):
        key: int
        a: int

    class Other(NamedTuple):
        key: int
        b: int

    class Both(NamedTuple):
        key: int
        a: int | None
        b: int | None

    flow = hr.Flow("keys")
    one, other = flow.source("one", One), flow.source("other", Other)
    assert one.join(other, on="key", how="full", into=Both).schema.row_class is Both
    with pytest.raises(WrongType):
        one.join(other, on="key", how="right", into=Other)


rows = st.lists(st.tuples(st.integers(0, 2) | st.none(), st.integers(0, 3)), max_size=6)


class One(NamedTuple):
    key: int | None
    a: int


class Other(NamedTuple):
    other: int | None
    b: int


@given(rows, rows, st.sampled_from(["right", "full"]), st.booleans())
def test_outer_joins_are_what_a_nested_loop_finds(
    dues: list[tuple[int | None, int]], paids: list[tuple[int | None, int]], how: Any, residual: bool
) -> None:
    def fits(one: tuple[int | None, int], other: tuple[int | None, int]) -> bool:
        return one[0] is not None and one[0] == other[0] and (not residual or one[1] < other[1])

    expected: list[tuple[Any, ...]] = [(*one, *other) for one in dues for other in paids if fits(one, other)]
    expected += [(None, None, *other) for other in paids if not any(fits(one, other) for one in dues)]
    if how == "full":
        expected += [(*one, None, None) for one in dues if not any(fits(one, other) for other in paids)]

    flow = hr.Flow("outer")
    on = left.key == right.other
    if residual:
        on &= left.a < right.b
    flow.sink("out", flow.table("dues", One).join(flow.table("paids", Other), on=on, how=how))
    engine, found = hr.Engine(flow), Counter[Any]()
    for at in range(6):
        due, paid = [One(*row) for row in dues[at : at + 1]], [Other(*row) for row in paids[at : at + 1]]
        for row, weight in engine.tick(dues=due, paids=paid)["out"]:
            found[tuple(row)] += weight
    assert {row: weight for row, weight in found.items() if weight} == dict(Counter(expected))
