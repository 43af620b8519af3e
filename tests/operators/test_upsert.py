"""Upserts: the latest row of each key, whatever is delivered, in whatever order."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.errors import BadFlow, EvaluationError, NeedNotMet, RecordMisfit, WrongType
from penstock.testing import Backend, check_ticks

AnyStream = ps.Stream[Any, Any, Any, Any]


class Record(NamedTuple):
    id: int
    name: str | None
    at: int
    op: str


class Customer(NamedTuple):
    id: int
    name: str | None


class Envelope(NamedTuple):
    id: int
    before: Customer | None
    after: Customer | None


def records(flow: ps.Flow) -> AnyStream:
    return flow.source("records", Record)


def rows(records: AnyStream, **options: Any) -> AnyStream:
    return records.upsert("id", row=ps.struct(id=col.id, name=col.name), deleted=col.op == "D", **options)


def test_the_latest_record_of_a_key_counts(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: rows(records(flow)),
        """
        tick | records                     | out
        1    | 1 ann 0 I; 2 bob 0 I        | + 1 ann; + 2 bob
        2    | 1 eve 0 U; 1 amy 0 U        | - 1 ann; + 1 amy
        3    | 1 amy 0 U; 3 joe 0 I        | + 3 joe
        4    | 2 bob 0 D; 2 bob 0 D        | - 2 bob
        5    | 3 joe 0 D; 3 joe 0 I        |
        6    | 2 kim 0 I; 2 kim 0 D        |
        7    | 2 kim 0 I                   | + 2 kim
    """,
    )


def test_an_older_record_is_passed_over_also_after_a_deletion(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: rows(records(flow), sequence="at"),
        """
        tick | records                     | out
        1    | 1 ann 5 I; 1 eve 3 I        | + 1 ann
        2    | 1 amy 4 U                   |
        3    | 1 ann 5 I                   |
        4    | 1 ann 7 D                   | - 1 ann
        5    | 1 eve 6 U; 1 ann 7 D        |
        6    | 1 kim 8 I; 2 bob 1 D        | + 1 kim
        7    | 2 bob 0 I                   |
    """,
    )


def test_records_that_do_not_fit_are_set_aside(backend: Backend) -> None:
    def misfits(flow: ps.Flow) -> AnyStream:
        latest = rows(records(flow), sequence="at", on_misfit="dead_letter")
        return latest.misfits().select("id", "name", known=col.misfit.contains("sequence"))

    check_ticks(
        backend,
        misfits,
        """
        tick | records                     | out
        1    | 1 ann 5 I; 1 eve 5 I        | + 1 eve true
        2    | 1 ann 5 I; 1 amy 5 U        | + 1 amy true
        3    | 1 amy 6 D; 1 ann 6 I        |
        4    | 1 ann 7 I; 1 eve 5 I        |
    """,
    )


def test_of_trusted_records_the_greatest_row_counts(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: rows(records(flow), sequence="at", on_misfit="trust_key"),
        """
        tick | records                     | out
        1    | 1 ann 5 I; 1 eve 5 I        | + 1 eve
        2    | 1 amy 5 I; 1 eve 4 D        |
        3    | 1 amy 5 D                   | - 1 eve
        4    | 1 zoe 5 I                   |
        5    | 1 zoe 6 I                   | + 1 zoe
    """,
    )


def envelopes(**options: Any) -> ps.Engine:
    flow = ps.Flow("customers")
    given = flow.source("records", Envelope)
    latest = given.upsert("id", row=col.after, before=col.before, **options)
    flow.sink("out", latest)
    if options.get("on_misfit") == "dead_letter":
        flow.sink("misfits", latest.misfits())
    return ps.Engine(flow)


ANN, AMY, EVE = Customer(1, "ann"), Customer(1, "amy"), Customer(1, "eve")


def test_a_row_before_that_is_not_held_is_found() -> None:
    engine = envelopes()
    made = engine.tick(records=[Envelope(1, None, ANN), Envelope(1, ANN, AMY), Envelope(1, ANN, AMY)])
    assert list(made["out"]) == [ps.insert(AMY)]
    with pytest.raises(
        RecordMisfit, match=r"it replaces \(id=1, name='ann'\), but \(id=1, name='amy'\) is held"
    ) as e:
        engine.tick(records=[Envelope(1, ANN, EVE)])
    assert (e.value.facts["key"], e.value.facts["held"]) == (1, (1, "amy"))
    assert e.value.facts["operator"] == "upsert_1"


def test_a_row_before_that_is_not_held_is_set_aside() -> None:
    engine = envelopes(on_misfit="dead_letter")
    made = engine.tick(records=[Envelope(1, AMY, ANN), Envelope(2, None, Customer(2, "bob"))])
    assert list(made["out"]) == [ps.insert(Customer(2, "bob"))]
    [(_, before, after, reason, weight)] = made["misfits"].raw
    assert (before, after, weight) == ((1, "amy"), (1, "ann"), 1)
    assert reason == "it replaces (id=1, name='amy'), but none is held"


def test_a_trusted_record_need_not_fit() -> None:
    engine = envelopes(on_misfit="trust_key")
    assert list(engine.tick(records=[Envelope(1, AMY, ANN)])["out"]) == [ps.insert(ANN)]
    assert list(engine.tick(records=[Envelope(1, EVE, None)])["out"]) == [ps.delete(ANN)]


def test_the_operation_may_be_null() -> None:
    class Optional(NamedTuple):
        id: int
        op: str | None

    flow = ps.Flow("f")
    flow.sink("out", flow.source("records", Optional).upsert("id", deleted=col.op == "D"))
    assert ps.Engine(flow).tick(records=[Optional(1, None), Optional(2, "D")])["out"].raw == [(1, None, 1)]


def test_a_record_needs_a_sequence() -> None:
    class Sequenced(NamedTuple):
        id: int
        at: int | None

    flow = ps.Flow("f")
    flow.sink("out", flow.source("records", Sequenced).upsert("id", sequence="at"))
    with pytest.raises(EvaluationError, match="a record has no sequence"):
        ps.Engine(flow).tick(records=[Sequenced(1, None)])


def test_without_a_sequence_records_need_an_order() -> None:
    flow = ps.Flow("f")
    both = records(flow).union(flow.source("more", Record))
    flow.sink("out", rows(both))
    with pytest.raises(NeedNotMet, match="of two records of a key, the later one decides"):
        ps.Engine(flow)


def test_with_a_sequence_records_need_none() -> None:
    flow = ps.Flow("f")
    flow.sink("out", rows(records(flow).union(flow.source("more", Record)), sequence="at"))
    made = ps.Engine(flow).tick(records=[Record(1, "ann", 2, "U")], more=[Record(1, "eve", 1, "U")])
    assert made["out"].raw == [(1, "ann", 1)]


def test_records_cannot_be_taken_back() -> None:
    flow = ps.Flow("f")
    flow.sink("out", flow.table("records", Record).upsert("id", sequence="at"))
    with pytest.raises(NeedNotMet, match="a record is an event"):
        ps.Engine(flow)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sequence": col.at / 2}, "sequence of the records is"),
        ({"sequence": 7}, "sequence of the records is 7, not an expression"),
        ({"row": col.id}, "row of the records is the expression id, not a struct"),
        ({"deleted": col.id}, "deleted of the records is the expression id, not true or false"),
        ({"before": ps.struct(a=col.id)}, "before of the records is"),
        (
            {"before": ps.struct(id=col.id), "row": ps.struct(id=col.id), "sequence": "at"},
            "the row before and a",
        ),
        ({"on_misfit": "ignore"}, "on_misfit of the records is 'ignore', not one of"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongType, match=said):
        records(ps.Flow("f")).upsert("id", **options)


def test_misfits_are_of_an_upsert_that_sets_them_aside() -> None:
    flow = ps.Flow("f")
    with pytest.raises(BadFlow, match="a stream that sets no records aside"):
        rows(records(flow)).misfits()


class Tagged(NamedTuple):
    """A record whose row has parts with several forms of one value."""

    id: int
    tags: dict[str, float]
    at: int
    op: str


ENTRIES = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, -0.0, 1.0])), unique_by=lambda e: e[0]
)
TAGGED = st.builds(
    Tagged,
    st.integers(1, 2),
    ENTRIES.flatmap(st.permutations).map(dict),
    st.integers(0, 3),
    st.sampled_from("IUD"),
)


def tagged(**options: Any) -> ps.Engine:
    flow = ps.Flow("f")
    records: AnyStream = flow.source("records", Tagged)
    row = ps.struct(id=col.id, tags=col.tags)
    flow.sink("out", records.upsert("id", row=row, deleted=col.op == "D", **options))
    return ps.Engine(flow)


@pytest.mark.parametrize("options", [{}, {"sequence": "at"}])
def test_entries_of_maps_have_no_order(options: dict[str, Any]) -> None:
    engine = tagged(**options)
    first, again = Tagged(1, {"a": 0.0, "b": 1.0}, 1, "I"), Tagged(1, {"b": 1.0, "a": -0.0}, 1, "U")
    assert len(engine.tick(records=[first])["out"]) == 1
    assert list(engine.tick(records=[again])["out"]) == []


@pytest.mark.parametrize("by_sequence", [False, True])
@given(ticks=st.lists(st.lists(TAGGED, max_size=4), max_size=6))
def test_rows_of_equal_maps_are_those_of_a_dict(by_sequence: bool, ticks: list[list[Tagged]]) -> None:
    options: dict[str, Any] = {"sequence": "at", "on_misfit": "trust_key"} if by_sequence else {}
    engine, held, shown = tagged(**options), dict[int, Tagged](), Counter[Any]()

    def order(record: Tagged) -> Any:
        return record.at, record.op == "D", record.op != "D" and sorted(record.tags.items())

    for tick in ticks:
        for record in tick:
            if not by_sequence or record.id not in held or order(held[record.id]) <= order(record):
                held[record.id] = record
        for id, tags, weight in engine.tick(records=tick)["out"].raw:
            shown[id, frozenset(tags)] += weight
        rows = [(record.id, frozenset(record.tags.items())) for record in held.values() if record.op != "D"]
        assert +shown == Counter(rows)
        assert min(shown.values(), default=0) >= 0


RECORDS = st.builds(
    Record, st.integers(1, 3), st.sampled_from(["a", "b"]), st.integers(0, 9), st.sampled_from("IUD")
)


@given(st.lists(st.lists(RECORDS, max_size=4), max_size=6))
def test_the_rows_are_those_of_a_dict(ticks: list[list[Record]]) -> None:
    flow = ps.Flow("f")
    flow.sink("out", rows(records(flow)))
    engine, held, shown = ps.Engine(flow), dict[int, Customer](), Counter[Any]()
    for tick in ticks:
        for record in tick:
            if record.op == "D":
                held.pop(record.id, None)
            else:
                held[record.id] = Customer(record.id, record.name)
        for *row, weight in engine.tick(records=tick)["out"].raw:
            shown[Customer(*row)] += weight
        assert +shown == Counter(held.values())
        assert min(shown.values(), default=0) >= 0


@given(st.lists(RECORDS, max_size=8).flatmap(st.permutations), st.lists(RECORDS, max_size=8))
def test_no_order_and_no_copy_changes_what_a_sequence_says(
    shuffled: list[Record], more: list[Record]
) -> None:
    flow = ps.Flow("f")
    flow.sink("out", rows(records(flow), sequence="at", on_misfit="trust_key"))

    def answer(*ticks: list[Record]) -> Counter[Any]:
        engine, shown = ps.Engine(flow), Counter[Any]()
        for tick in ticks:
            for *row, weight in engine.tick(records=tick)["out"].raw:
                shown[tuple(row)] += weight
        return +shown

    once = answer(shuffled + more)
    assert once == answer(more, shuffled) == answer(sorted(shuffled), more, shuffled[:3], more)
