"""Upserts: the latest row of each key, whatever is delivered, in whatever order."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.analysis.fingerprints import describe_nodes
from headrace.errors import BadFlow, EvaluationError, NeedNotMet, RecordMisfit, WrongType
from headrace.operators.keyed_tables import upsert_rule
from headrace.testing import Backend, check_ticks

AnyStream = hr.Stream[Any, Any, Any, Any]


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


def records(flow: hr.Flow) -> AnyStream:
    return flow.source("records", Record)


def rows(records: AnyStream, **options: Any) -> AnyStream:
    return records.upsert("id", row=hr.struct(id=col.id, name=col.name), deleted=col.op == "D", **options)


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


def test_a_tombstone_is_forgotten_when_the_highest_sequence_is_so_far_ahead(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: rows(records(flow), sequence="at", tombstones=3),
        """
        tick | records                     | out
        1    | 1 ann 5 I; 2 bob 5 I        | + 1 ann; + 2 bob
        2    | 1 ann 6 D; 2 bob 7 D        | - 1 ann; - 2 bob
        3    | 3 joe 9 I; 1 eve 4 I        | + 3 joe
        4    | 1 eve 4 I                   |
        5    | 4 kim 10 I; 1 eve 4 I       | + 4 kim
        6    | 1 eve 4 I; 2 eve 4 I        | + 1 eve
        7    | 1 eve 3 I; 5 zoe 2 D        |
        8    | 5 zoe 1 I                   | + 5 zoe
        9    | 2 bob 8 I; 2 bob 9 D        |
        10   | 6 lou 12 I; 2 bob 8 I       | + 6 lou
        11   | 7 max 13 I                  | + 7 max
        12   | 2 bob 8 I                   | + 2 bob
    """,
    )


def test_misfits_are_those_of_the_tombstones_that_are_kept(backend: Backend) -> None:
    def misfits(flow: hr.Flow) -> AnyStream:
        latest = rows(records(flow), sequence="at", on_misfit="dead_letter", tombstones=1)
        return latest.misfits().select("id", "name")

    check_ticks(
        backend,
        misfits,
        """
        tick | records                     | out
        1    | 1 ann 5 I; 2 bob 7 I        |
        2    | 1 ann 5 D                   |
        3    | 1 ann 4 I; 1 eve 4 I        | + 1 eve
        4    | 2 eve 7 I                   | + 2 eve
    """,
    )


def test_records_that_do_not_fit_are_set_aside(backend: Backend) -> None:
    def misfits(flow: hr.Flow) -> AnyStream:
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


def test_a_row_wins_against_a_deletion_of_an_older_one(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: rows(records(flow), sequence="at"),
        """
        tick | records                         | out
        1    | 1 ann 0 I; 2 bob 0 I            | + 1 ann; + 2 bob
        2    | 1 ann 1 D; 1 amy 1 I            | - 1 ann; + 1 amy
        3    | 2 bob 1 I; 2 bob 1 D            |
        4    | 1 amy 2 I                       |
        5    | 1 amy 2 D                       |
        6    | 1 eve 3 U                       | - 1 amy; + 1 eve
        7    | 1 eve 3 D                       | - 1 eve
        8    | 1 eve 3 U                       |
        9    | 3 joe 5 D; 3 joe 5 I            |
        10   | 3 kim 4 I                       |
        11   | 3 joe 4 I                       | + 3 joe
        12   | 4 null 7 D                      |
        13   | 4 zoe 7 I                       |
        14   | 4 lou 6 I                       | + 4 zoe
    """,
    )


@pytest.mark.parametrize(("deletes", "most"), [(False, 0), (True, 2)])
def test_older_rows_are_digested_only_where_a_deletion_may_follow_and_once_a_tick(
    deletes: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested: list[bytes] = []

    def counted(data: bytes, digest_size: int) -> Any:
        digested.append(data)
        return blake2b(data, digest_size=digest_size)

    monkeypatch.setattr(upsert_rule, "blake2b", counted)
    flow = hr.Flow("f")
    given = flow.source("records", Record)
    latest = rows(given, sequence="at") if deletes else given.upsert("id", sequence="at")
    flow.sink("out", latest)
    engine = hr.Engine(flow)
    engine.tick(records=[Record(key, "ann", at, "I") for at in range(9) for key in (1, 2)])
    assert len(digested) == most
    engine.tick(records=[Record(key, "ann", 8, "I") for key in (1, 2)])
    assert len(digested) == most


class Committed(NamedTuple):
    id: int
    name: str | None
    version: int
    op: str


def test_in_a_commit_a_row_always_wins(backend: Backend) -> None:
    def latest(flow: hr.Flow) -> AnyStream:
        commits = flow.source("records", Committed).select("id", "name", "op", _commit_version=col.version)
        return rows(commits, sequence="_commit_version")

    check_ticks(
        backend,
        latest,
        """
        tick | records             | out
        1    | 1 ann 7 D; 1 ann 7 I | + 1 ann
        2    | 1 ann 7 D            |
        3    | 1 ann 8 D            | - 1 ann
        4    | 1 ann 8 I            | + 1 ann
    """,
    )


def envelopes(**options: Any) -> hr.Engine:
    flow = hr.Flow("customers")
    given = flow.source("records", Envelope)
    latest = given.upsert("id", row=col.after, before=col.before, **options)
    flow.sink("out", latest)
    if options.get("on_misfit") == "dead_letter":
        flow.sink("misfits", latest.misfits())
    return hr.Engine(flow)


ANN, AMY, EVE = Customer(1, "ann"), Customer(1, "amy"), Customer(1, "eve")


def test_a_row_before_that_is_not_held_is_found() -> None:
    engine = envelopes()
    made = engine.tick(records=[Envelope(1, None, ANN), Envelope(1, ANN, AMY), Envelope(1, ANN, AMY)])
    assert list(made["out"]) == [hr.insert(AMY)]
    with pytest.raises(
        RecordMisfit, match=r"it replaces \(id=1, name='ann'\), but \(id=1, name='amy'\) is held"
    ) as e:
        engine.tick(records=[Envelope(1, ANN, EVE)])
    assert (e.value.facts["key"], e.value.facts["held"]) == (1, (1, "amy"))
    assert e.value.facts["operator"] == "upsert_1"


def test_a_row_before_that_is_not_held_is_set_aside() -> None:
    engine = envelopes(on_misfit="dead_letter")
    made = engine.tick(records=[Envelope(1, AMY, ANN), Envelope(2, None, Customer(2, "bob"))])
    assert list(made["out"]) == [hr.insert(Customer(2, "bob"))]
    [(_, before, after, reason, weight)] = made["misfits"].raw
    assert (before, after, weight) == ((1, "amy"), (1, "ann"), 1)
    assert reason == "it replaces (id=1, name='amy'), but none is held"


def test_a_trusted_record_need_not_fit() -> None:
    engine = envelopes(on_misfit="trust_key")
    assert list(engine.tick(records=[Envelope(1, AMY, ANN)])["out"]) == [hr.insert(ANN)]
    assert list(engine.tick(records=[Envelope(1, EVE, None)])["out"]) == [hr.delete(ANN)]


def test_the_operation_may_be_null() -> None:
    class Optional(NamedTuple):
        id: int
        op: str | None

    flow = hr.Flow("f")
    flow.sink("out", flow.source("records", Optional).upsert("id", deleted=col.op == "D"))
    assert hr.Engine(flow).tick(records=[Optional(1, None), Optional(2, "D")])["out"].raw == [(1, None, 1)]


def test_a_record_needs_a_sequence() -> None:
    class Sequenced(NamedTuple):
        id: int
        at: int | None

    flow = hr.Flow("f")
    flow.sink("out", flow.source("records", Sequenced).upsert("id", sequence="at"))
    with pytest.raises(EvaluationError, match="a record has no sequence"):
        hr.Engine(flow).tick(records=[Sequenced(1, None)])


def test_without_a_sequence_records_need_an_order() -> None:
    flow = hr.Flow("f")
    both = records(flow).union(flow.source("more", Record))
    flow.sink("out", rows(both))
    with pytest.raises(NeedNotMet, match="of two records of a key, the later one decides"):
        hr.Engine(flow)


def test_with_a_sequence_records_need_none() -> None:
    flow = hr.Flow("f")
    flow.sink("out", rows(records(flow).union(flow.source("more", Record)), sequence="at"))
    made = hr.Engine(flow).tick(records=[Record(1, "ann", 2, "U")], more=[Record(1, "eve", 1, "U")])
    assert made["out"].raw == [(1, "ann", 1)]


def test_records_cannot_be_taken_back() -> None:
    flow = hr.Flow("f")
    flow.sink("out", flow.table("records", Record).upsert("id", sequence="at"))
    with pytest.raises(NeedNotMet, match="a record is an event"):
        hr.Engine(flow)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sequence": col.at / 2}, "sequence of the records is"),
        ({"sequence": 7}, "sequence of the records is 7, not an expression"),
        ({"row": col.id}, "row of the records is the expression id, not a struct"),
        ({"deleted": col.id}, "deleted of the records is the expression id, not true or false"),
        ({"before": hr.struct(a=col.id)}, "before of the records is"),
        (
            {"before": hr.struct(id=col.id), "row": hr.struct(id=col.id), "sequence": "at"},
            "the row before and a",
        ),
        ({"on_misfit": "ignore"}, "on_misfit of the records is 'ignore', not one of"),
        ({"tombstones": 3}, "tombstones= is given for records without a sequence"),
        ({"sequence": "op", "tombstones": 3}, "tombstones= is given for records whose sequence is str"),
        (
            {"sequence": "at", "tombstones": "3 d"},
            "tombstones of the records is '3 d', not a number of steps",
        ),
        ({"sequence": "at", "tombstones": -1}, "tombstones is -1"),
        ({"sequence": "at", "tombstones": True}, "tombstones is a whole number, got True"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongType, match=said):
        records(hr.Flow("f")).upsert("id", **options)


def test_misfits_are_of_an_upsert_that_sets_them_aside() -> None:
    flow = hr.Flow("f")
    with pytest.raises(BadFlow, match="a stream that sets no records aside"):
        rows(records(flow)).misfits()


def by_the_rule(records: list[Any], value: Any) -> dict[int, Any]:
    """The record that sets the row of each key, by the rule of ties, of all records with their keys.

    value: what a row has beside its key. Of operations, "D" deletes the row that the record has, and "K" the
    row of its key.
    """
    held: dict[int, Any] = {}
    for key in {record.id for record in records}:
        own = [record for record in records if record.id == key]
        top = max(record.at for record in own)
        last, sets = [r for r in own if r.at == top], [r for r in own if r.op not in "DK"]
        found = max((r for r in sets if r.at == top), key=value, default=None)
        older = [r for r in sets if r.at < top]
        before = [value(r) for r in older if r.at == max(r.at for r in older)]
        deleted = [value(r) for r in last if r.op == "D"]
        if found is not None and any(r.op in "DK" for r in last):
            is_named = value(found) in deleted and value(found) not in before
            found = None if is_named or not older else found
        if found is not None:
            held[key] = found
    return held


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


def tagged(**options: Any) -> hr.Engine:
    flow = hr.Flow("f")
    records: AnyStream = flow.source("records", Tagged)
    row = hr.struct(id=col.id, tags=col.tags)
    flow.sink("out", records.upsert("id", row=row, deleted=col.op == "D", **options))
    return hr.Engine(flow)


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

    given_records: list[Tagged] = []
    for tick in ticks:
        given_records += tick
        for record in tick:
            held[record.id] = record
        if by_sequence:
            held = by_the_rule(given_records, lambda record: sorted(record.tags.items()))
        for id, tags, weight in engine.tick(records=tick)["out"].raw:
            shown[id, frozenset(tags)] += weight
        rows = [(record.id, frozenset(record.tags.items())) for record in held.values() if record.op != "D"]
        assert +shown == Counter(rows)
        assert min(shown.values(), default=0) >= 0


RECORDS = st.builds(
    Record, st.integers(1, 3), st.sampled_from(["a", "b"]), st.integers(0, 9), st.sampled_from("IUD")
)
TIES = st.builds(Record, st.just(1), st.sampled_from("abc"), st.integers(0, 2), st.sampled_from("IUDD"))
"""Records of one key, of which most have a sequence that others have, too."""


@given(st.lists(st.lists(RECORDS, max_size=4), max_size=6))
def test_the_rows_are_those_of_a_dict(ticks: list[list[Record]]) -> None:
    flow = hr.Flow("f")
    flow.sink("out", rows(records(flow)))
    engine, held, shown = hr.Engine(flow), dict[int, Customer](), Counter[Any]()
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
    flow = hr.Flow("f")
    flow.sink("out", rows(records(flow), sequence="at", on_misfit="trust_key"))

    def answer(*ticks: list[Record]) -> Counter[Any]:
        engine, shown = hr.Engine(flow), Counter[Any]()
        for tick in ticks:
            for *row, weight in engine.tick(records=tick)["out"].raw:
                shown[tuple(row)] += weight
        return +shown

    once = answer(shuffled + more)
    assert once == answer(more, shuffled) == answer(sorted(shuffled), more, shuffled[:3], more)


@given(ticks=st.lists(st.lists(TIES, max_size=4), max_size=6))
def test_ties_are_those_of_the_rule(ticks: list[list[Record]]) -> None:
    flow = hr.Flow("f")
    flow.sink("out", rows(records(flow), sequence="at", on_misfit="trust_key"))
    engine, shown = hr.Engine(flow), Counter[Any]()
    so_far: list[Record] = []
    for tick in ticks:
        so_far += tick
        for *row, weight in engine.tick(records=tick)["out"].raw:
            shown[tuple(row)] += weight
        expected = by_the_rule(so_far, lambda record: record.name)
        assert +shown == Counter((each.id, each.name) for each in expected.values())


@given(st.lists(TIES, max_size=8).flatmap(st.permutations), st.integers(0, 8))
def test_no_order_changes_what_ties_mean(shuffled: list[Record], cut: int) -> None:
    flow = hr.Flow("f")
    flow.sink("out", rows(records(flow), sequence="at", on_misfit="trust_key"))

    def answer(*ticks: list[Record]) -> Counter[Any]:
        engine, shown = hr.Engine(flow), Counter[Any]()
        for tick in ticks:
            for *row, weight in engine.tick(records=tick)["out"].raw:
                shown[tuple(row)] += weight
        return +shown

    assert answer(shuffled) == answer(sorted(shuffled)) == answer(shuffled[cut:], shuffled[:cut], shuffled)


@given(ticks=st.lists(st.lists(RECORDS, max_size=4), max_size=8), kept=st.integers(0, 4))
def test_deleted_keys_are_those_of_a_dict_that_forgets(ticks: list[list[Record]], kept: int) -> None:
    flow = hr.Flow("f")
    flow.sink("out", rows(records(flow), sequence="at", on_misfit="trust_key", tombstones=kept))
    engine, shown = hr.Engine(flow), Counter[Any]()
    known: dict[int, list[Record]] = {}
    highest = 0
    for tick in ticks:
        for record in tick:
            highest = max(highest, record.at)
            known.setdefault(record.id, []).append(record)
        found = {key: by_the_rule(own, lambda record: record.name).get(key) for key, own in known.items()}
        for *row, weight in engine.tick(records=tick)["out"].raw:
            shown[tuple(row)] += weight
        assert +shown == Counter((each.id, each.name) for each in found.values() if each is not None)
        assert min(shown.values(), default=0) >= 0
        for key, record in found.items():
            if record is None and max(each.at for each in known[key]) < highest - kept:
                del known[key]


class Timed(NamedTuple):
    id: int
    at: datetime


def test_tombstones_of_a_table_with_a_key_are_kept_for_a_time() -> None:
    flow = hr.Flow("f")
    flow.sink("out", flow.table("rows", Timed, key="id", sequence="at", tombstones="1 d"))
    engine = hr.Engine(flow)
    day = [datetime(2026, 1, n, tzinfo=UTC) for n in range(1, 9)]
    engine.tick(rows=[Timed(1, day[1]), hr.delete_key(1, sequence=day[2]), Timed(2, day[3])])
    assert list(engine.tick(rows=[Timed(1, day[0])])["out"]) == []
    engine.tick(rows=[Timed(2, day[4])])
    assert list(engine.tick(rows=[Timed(1, day[0])])["out"]) == [hr.insert(Timed(1, day[0]))]


def test_forgotten_tombstones_leave_nothing_in_state() -> None:
    flow = hr.Flow("f")
    flow.sink("out", rows(records(flow), sequence="at", tombstones=10))
    state: dict[str, dict[Any, Any]] = {name: {} for name in hr.Engine(flow).slots}
    engine = hr.Engine(flow, state=state)
    for at in range(100):
        engine.tick(records=[Record(at, "ann", at, "I"), Record(at, None, at, "D")])
    assert {len(slot) for slot in state.values()} == {1, 11}


@pytest.mark.parametrize("tombstones", [None, 2])
def test_a_run_goes_on_with_its_tombstones(tmp_path: Path, tombstones: int | None) -> None:
    given: list[Record] = []

    def run(*more: Record) -> list[Any]:
        given.extend(more)
        flow, out = hr.Flow("f"), list[Any]()
        flow.sink("out", rows(records(flow), sequence="at", tombstones=tombstones))
        hr.run(flow, {"records": given}, {"out": out}, checkpoint=tmp_path / "state")
        return [tuple(each.row) for each in out]

    run(Record(1, "ann", 5, "I"), Record(1, "ann", 6, "D"))
    assert run(Record(1, "eve", 4, "I"), Record(2, "bob", 9, "I")) == [(2, "bob")]
    assert run(Record(1, "eve", 4, "I")) == ([] if tombstones is None else [(1, "eve")])


def test_a_flow_that_keeps_all_tombstones_is_described_as_before_there_was_a_choice() -> None:
    def described(**options: Any) -> str:
        flow = hr.Flow("f")
        flow.sink("out", rows(records(flow), sequence="at", **options))
        return str(describe_nodes(flow.graph()))

    assert "tombstones" not in described()
    assert "tombstones" in described(tombstones=0)
