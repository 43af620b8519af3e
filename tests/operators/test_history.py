"""Histories: all versions of each key's row, from records in any order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import RecordMisfit, WrongType
from headrace.io import Memory, Rows
from headrace.testing import Backend, check_ticks
from tests.operators.test_upsert import by_the_rule

AnyStream = hr.Stream[Any, Any, Any, Any]


class Record(NamedTuple):
    id: int
    city: str
    phone: str
    at: int
    op: str


# An operation "D" deletes the row that the record has, "K" the row of its key.
ROW = hr.when(col.op != "K", hr.struct(id=col.id, city=col.city, phone=col.phone))
DELETED = col.op == "D"


def versions(flow: hr.Flow, **options: Any) -> AnyStream:
    return flow.source("records", Record).history("id", sequence="at", row=ROW, deleted=DELETED, **options)


def test_a_version_ends_where_the_next_one_starts(backend: Backend) -> None:
    check_ticks(
        backend,
        versions,
        """
        tick | records                    | out
        1    | 1 Rome a 10 I; 2 Oslo b 5 I | + 1 Rome a 10 null; + 2 Oslo b 5 null
        2    | 1 Bonn a 20 U              | - 1 Rome a 10 null; + 1 Rome a 10 20; + 1 Bonn a 20 null
        3    | 1 Rome a 10 I; 1 Bonn a 22 U |
        4    | 1 Paris a 15 U             | - 1 Rome a 10 20; + 1 Rome a 10 15; + 1 Paris a 15 20
        5    | 1 x x 30 D; 2 x x 5 D      | - 1 Bonn a 20 null; + 1 Bonn a 20 30; - 2 Oslo b 5 null
        6    | 1 Bonn a 40 I              | + 1 Bonn a 40 null
    """,
    )


def test_a_deletion_of_an_older_row_ends_no_version_of_its_sequence(backend: Backend) -> None:
    check_ticks(
        backend,
        versions,
        """
        tick | records                        | out
        1    | 1 Rome a 0 I; 2 Oslo b 0 I     | + 1 Rome a 0 null; + 2 Oslo b 0 null
        2    | 1 Rome a 1 D; 1 Bonn a 1 I     | - 1 Rome a 0 null; + 1 Rome a 0 1; + 1 Bonn a 1 null
        3    | 2 Oslo b 1 I                   |
        4    | 2 Oslo b 1 D                   |
        5    | 5 Rome a 0 I; 5 Bonn a 1 I; 5 Bonn a 1 D | + 5 Rome a 0 1
        6    | 3 Paris c 5 I; 3 Paris c 5 D   |
        7    | 3 Nice c 4 I                   | + 3 Nice c 4 5
        8    | 3 Paris c 3 I                  | + 3 Paris c 3 4
        9    | 4 Nice c 5 D; 4 Rome d 5 I; 4 Nice c 4 I | + 4 Nice c 4 5; + 4 Rome d 5 null
    """,
    )


def test_columns_that_are_not_tracked_are_those_of_the_last_record(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: versions(flow, track=["city"]),
        """
        tick | records                    | out
        1    | 1 R a 10 I              | + 1 R a 10 null
        2    | 1 R b 20 U              | - 1 R a 10 null; + 1 R b 10 null
        3    | 1 R c 15 U              |
        4    | 1 B c 17 U              | - 1 R b 10 null; + 1 R c 10 17; + 1 B c 17 20; + 1 R b 20 null
        5    | 1 R b 20 U; 1 x x 30 D  | - 1 R b 20 null; + 1 R b 20 30
    """,
    )


def test_the_whole_record_is_the_row_by_default() -> None:
    flow = hr.Flow("f")
    flow.sink("out", flow.source("records", Record).history("id", sequence="at"))
    made = hr.Engine(flow).tick(records=[Record(1, "Rome", "a", 1, "I"), Record(1, "Rome", "a", 2, "I")])
    assert [row[:-1] for row in made["out"].raw] == [(1, "Rome", "a", 2, "I", 1, None)]


def test_records_of_one_sequence_may_not_differ() -> None:
    flow = hr.Flow("f")
    flow.sink("out", versions(flow))
    engine = hr.Engine(flow)
    engine.tick(records=[Record(1, "Rome", "a", 1, "I"), Record(1, "Oslo", "a", 2, "I")])
    with pytest.raises(RecordMisfit, match="does not fit the row of id=1: of sequence 1, it sets") as raised:
        engine.tick(records=[Record(1, "Bonn", "a", 1, "I")])
    assert raised.value.facts["held"] == (1, "Rome", "a")


@pytest.mark.parametrize("cut", [False, True])
def test_a_misfit_of_a_row_that_was_deleted_reads_the_same_of_upsert(cut: bool) -> None:
    records = [Record(1, "Rome", "a", 5, "I"), Record(1, "Rome", "a", 5, "D")]
    made: list[tuple[str, Any]] = []
    for build in ("upsert", "history"):
        flow = hr.Flow("f")
        stream = flow.source("records", Record)
        flow.sink("out", getattr(stream, build)("id", sequence="at", row=ROW, deleted=DELETED))
        engine = hr.Engine(flow)
        engine.tick(records=records if cut else [])
        with pytest.raises(RecordMisfit) as raised:
            engine.tick(records=[*records, Record(1, "Oslo", "a", 5, "I")])
        made.append((str(raised.value).partition("\n")[0], raised.value.facts["held"]))
    assert made[0] == made[1]
    reason = "it sets (id=1, city='Oslo', phone='a'), but another record set (id=1, city='Rome', phone='a')"
    assert made[0][0].endswith(f"of sequence 5, {reason}")
    assert made[0][1] is None


@pytest.mark.spark
@pytest.mark.seeds(1)
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_ties_mean_the_same_on_spark(mode: Any, seed: int, spark: Any) -> None:
    # Each key is a case of its own.
    draw = random.Random(seed)
    records = [
        Record(key, draw.choice(["Rome", "Bonn"]), draw.choice("ab"), draw.randrange(3), draw.choice("IIDDK"))
        for key in range(200)
        for _ in range(draw.randrange(1, 7))
    ]
    draw.shuffle(records)
    ticks = [records[: len(records) // 2], records[len(records) // 2 :]]
    flow = versions_and_rows("trust_key")
    flow.sink("table", flow.table("table", Held, key="id", sequence="at", on_misfit="trust_key"))
    sources = {"records": Rows(ticks), "table": Rows([[to_table(each) for each in tick] for tick in ticks])}
    memory = {name: Memory() for name in flow.graph().sinks}
    hr.spark.run(flow, spark, sources=sources, sinks=memory, mode=mode)
    shown = {name: Counter(map(tuple, held.rows())) for name, held in memory.items()}
    assert shown["versions"] == expected(records, lambda row: [*row[1:3]])
    assert open_versions(shown) == shown["rows"] == Counter(row[:3] for row in shown["table"])
    assert len(shown["rows"]) > 50


def test_deletions_of_one_sequence_may_name_different_rows() -> None:
    records = [Record(1, "Rome", "a", 1, "I"), Record(1, "Rome", "a", 2, "D"), Record(1, "Bonn", "a", 2, "D")]
    *_, shown = shown_by(versions_and_rows("error"), [records])
    assert shown == {"versions": Counter([(1, "Rome", "a", 1, 2)]), "rows": Counter()}


@pytest.mark.parametrize(
    "options",
    [
        {"track": ["nobody"]},
        {"row": col.id},
        {"row": hr.struct(start_at=col.id)},
        {"sequence": "nobody"},
        {"on_misfit": "dead_letter"},
    ],
)
def test_arguments_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises((WrongType, hr.errors.UnknownColumn)):
        hr.Flow("f").source("records", Record).history("id", **{"sequence": "at", **options})


RECORDS = st.builds(
    Record,
    st.integers(1, 2),
    st.sampled_from(["Rome", "Bonn"]),
    st.sampled_from("ab"),
    st.integers(0, 5),
    st.sampled_from("IID"),
)


def expected(records: list[Record], tracked: Any) -> Counter[Any]:
    """Versions by going through each key's records in order, with the row of the rule after each sequence."""
    out: Counter[Any] = Counter()
    for key in {record.id for record in records}:
        own = [record for record in records if record.id == key]
        found: list[list[Any]] = []
        for at in sorted({record.at for record in own}):
            record = by_the_rule([r for r in own if r.at <= at], lambda r: r[1:3]).get(key)
            open_ = found[-1] if found and found[-1][-1] is None else None
            if record is not None and open_ is not None and tracked(open_) == tracked(record):
                open_[:3] = record[:3]
                continue
            if open_ is not None:
                open_[-1] = at
            if record is not None:
                found.append([*record[:3], at, None])
        out.update(tuple(each) for each in found)
    return out


TIES = st.builds(
    Record,
    st.just(1),
    st.sampled_from(["Rome", "Bonn"]),
    st.sampled_from("ab"),
    st.integers(0, 3),
    st.sampled_from("IIDDK"),
)
"""Records of one key, of which most have a sequence that others have, too."""

APART = st.builds(
    Record,
    st.just(1),
    st.sampled_from(["Rome", "Bonn"]),
    st.just("a"),
    st.sampled_from([*range(30), 10, 20, 20]),
    st.sampled_from("IIIDK"),
)
"""Records of one key, of which many are far apart."""


@st.composite
def around_deletions(draw: Any) -> list[list[Record]]:
    """Ticks: deletions in a row with rows behind them; then changes before and behind the deletions."""
    last = draw(st.integers(5, 8))

    def some(at: int, ops: str, least: int = 0) -> list[Record]:
        cities = st.sampled_from(["Rome", "Bonn"])
        one = st.builds(Record, st.just(1), cities, st.just("a"), st.just(at), st.sampled_from(ops))
        return draw(st.lists(one, min_size=least, max_size=3))

    deletions = [Record(1, "Rome", "a", at, "K") for at in range(1, last - 1)]
    changes = [[*some(0, "IDK"), *some(last, "IIDK", 1)] for _ in range(2)]
    return [[*deletions, *some(last - 1, "IID", 1), *some(last, "IID", 1)], *changes]


@pytest.mark.parametrize("track", [None, ["city"], ["phone", "city"], []])
@given(ticks=st.lists(st.lists(RECORDS | TIES, max_size=4), max_size=5))
def test_versions_are_those_of_a_loop(track: Any, ticks: list[list[Record]]) -> None:
    flow = hr.Flow("f")
    flow.sink("out", versions(flow, track=track, on_misfit="trust_key"))
    engine, shown = hr.Engine(flow), Counter[Any]()
    for tick in ticks:
        for *row, weight in engine.tick(records=tick)["out"].raw:
            shown[tuple(row)] += weight
    at = [1, 2] if track is None else [Record._fields.index(name) for name in track]
    given_records = [record for tick in ticks for record in tick]
    assert +shown == expected(given_records, lambda row: [row[n] for n in at])


@given(
    st.builds(
        lambda first, more: [first, *more],
        st.lists(APART, min_size=20, max_size=40),
        st.lists(st.lists(APART, min_size=1, max_size=5), max_size=4),
    )
    | around_deletions()
)
@example(
    [
        [
            Record(1, "Rome", "a", at, op)
            for at, op in [(0, "I"), (0, "D"), (2, "I"), (3, "I"), (4, "I"), (5, "I")]
        ],
        [Record(1, "Rome", "a", at, "I") for at in (1, 6)],
    ]
)
@example(
    # The last row is next to the change of 13, beyond deletions, and is changed itself.
    [
        [
            Record(1, city, phone, at, op)
            for city, phone, at, op in [
                ("Rome", "a", 19, "K"),
                ("Rome", "a", 21, "D"),
                ("Rome", "b", 22, "K"),
                ("Bonn", "b", 23, "I"),
                ("Rome", "a", 23, "I"),
                ("Rome", "b", 24, "D"),
                ("Rome", "b", 24, "I"),
            ]
        ],
        [Record(1, "Bonn", "a", 13, "D"), Record(1, "Bonn", "a", 24, "I")],
    ]
)
def test_changes_far_apart_are_those_of_a_loop(ticks: list[list[Record]]) -> None:
    so_far: list[Record] = []
    for tick, shown in zip(ticks, shown_by(versions_and_rows("trust_key"), ticks), strict=True):
        so_far += tick
        assert shown["versions"] == expected(so_far, lambda row: [*row[1:3]])


def versions_and_rows(on_misfit: Any) -> hr.Flow:
    flow = hr.Flow("f")
    records = flow.source("records", Record)
    options: Any = {"sequence": "at", "row": ROW, "deleted": DELETED, "on_misfit": on_misfit}
    flow.sink("versions", records.history("id", **options))
    flow.sink("rows", records.upsert("id", **options))
    return flow


class Held(NamedTuple):
    id: int
    city: str
    phone: str
    at: int


def to_table(record: Record) -> Any:
    """A record, for a table with a key."""
    row = Held(*record[:4])
    if record.op == "K":
        return hr.delete_key(record.id, sequence=record.at)
    return hr.delete(row) if record.op == "D" else hr.insert(row)


def shown_by(flow: hr.Flow, ticks: list[list[Record]]) -> Iterator[dict[str, Counter[Any]]]:
    """What the sinks of a flow show after each tick."""
    engine = hr.Engine(flow)
    shown: dict[str, Counter[Any]] = {name: Counter() for name in flow.graph().sinks}
    for tick in ticks:
        given_now: dict[str, Any] = {"records": tick}
        if "table" in shown:
            given_now["table"] = [to_table(record) for record in tick]
        made = engine.tick(**given_now)
        for name, so_far in shown.items():
            for *found, weight in made[name].raw:
                so_far[tuple(found)] += weight
            assert min(so_far.values(), default=0) >= 0
            shown[name] = +so_far
        yield shown


def open_versions(shown: dict[str, Counter[Any]]) -> Counter[Any]:
    return Counter({each[:3]: n for each, n in shown["versions"].items() if each[-1] is None})


@given(ticks=st.lists(st.lists(RECORDS | TIES, max_size=4), max_size=6))
def test_open_versions_are_the_rows_of_upsert_and_of_a_table_with_a_key(ticks: list[list[Record]]) -> None:
    flow = versions_and_rows("trust_key")
    flow.sink("table", flow.table("table", Held, key="id", sequence="at", on_misfit="trust_key"))
    so_far: list[Record] = []
    for tick, shown in zip(ticks, shown_by(flow, ticks), strict=True):
        so_far += tick
        held = by_the_rule(so_far, lambda record: record[1:3])
        assert shown["rows"] == Counter(record[:3] for record in held.values())
        assert open_versions(shown) == shown["rows"] == Counter(row[:3] for row in shown["table"])


@given(
    st.lists(TIES, max_size=8).flatmap(lambda records: st.permutations(records + records[:3])),
    st.lists(st.integers(0, 11), max_size=3).map(sorted),
)
def test_no_order_no_copy_and_no_cut_into_ticks_changes_the_versions(
    shuffled: list[Record], cuts: list[int]
) -> None:
    pieces = [shuffled[start:end] for start, end in pairwise([0, *cuts, len(shuffled)])]
    *_, once = shown_by(versions_and_rows("trust_key"), [list(dict.fromkeys(sorted(shuffled)))])
    *_, in_pieces = shown_by(versions_and_rows("trust_key"), pieces)
    assert in_pieces == once


@pytest.mark.parametrize(
    "records",
    [
        [
            Record(1, "y", "a", 0, "I"),
            Record(1, "x", "a", 2, "I"),
            *(Record(1, c, "a", 2, "D") for c in "yx"),
        ],
        [
            *(Record(1, c, "a", 1, "I") for c in "xy"),
            Record(1, "x", "a", 2, "I"),
            Record(1, "x", "a", 2, "D"),
        ],
    ],
)
def test_open_versions_are_the_rows_of_upsert_among_several_of_a_sequence(records: list[Record]) -> None:
    made = hr.Engine(versions_and_rows("trust_key")).tick(records=records)
    assert [each[:3] for each in made["versions"].raw if each[-2] is None] == [
        each[:3] for each in made["rows"].raw
    ]
