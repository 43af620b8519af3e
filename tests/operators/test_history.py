"""Histories: all versions of each key's row, from records in any order."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.errors import RecordMisfit, WrongType
from penstock.testing import Backend, check_ticks

AnyStream = ps.Stream[Any, Any, Any, Any]


class Record(NamedTuple):
    id: int
    city: str
    phone: str
    at: int
    op: str


def versions(flow: ps.Flow, **options: Any) -> AnyStream:
    row = ps.struct(id=col.id, city=col.city, phone=col.phone)
    return flow.source("records", Record).history(
        "id", sequence="at", row=row, deleted=col.op == "D", **options
    )


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
    flow = ps.Flow("f")
    flow.sink("out", flow.source("records", Record).history("id", sequence="at"))
    made = ps.Engine(flow).tick(records=[Record(1, "Rome", "a", 1, "I"), Record(1, "Rome", "a", 2, "I")])
    assert [row[:-1] for row in made["out"].raw] == [(1, "Rome", "a", 2, "I", 1, None)]


def test_records_of_one_sequence_may_not_differ() -> None:
    flow = ps.Flow("f")
    flow.sink("out", versions(flow))
    with pytest.raises(RecordMisfit):
        ps.Engine(flow).tick(records=[Record(1, "Rome", "a", 1, "I"), Record(1, "Bonn", "a", 1, "I")])


@pytest.mark.parametrize(
    "options",
    [
        {"track": ["nobody"]},
        {"row": col.id},
        {"row": ps.struct(start_at=col.id)},
        {"sequence": "nobody"},
        {"on_misfit": "dead_letter"},
    ],
)
def test_arguments_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises((WrongType, ps.errors.UnknownColumn)):
        ps.Flow("f").source("records", Record).history("id", **{"sequence": "at", **options})


RECORDS = st.builds(
    Record,
    st.integers(1, 2),
    st.sampled_from(["Rome", "Bonn"]),
    st.sampled_from("ab"),
    st.integers(0, 5),
    st.sampled_from("IID"),
)


def expected(records: list[Record], tracked: Any) -> Counter[Any]:
    """Versions by going through each key's records in order."""
    out: Counter[Any] = Counter()
    for key in {record.id for record in records}:
        own = {(r.at, r.op == "D"): r for r in sorted(records, key=lambda r: r[1:3]) if r.id == key}
        found: list[list[Any]] = []
        for (at, gone), record in sorted(own.items()):
            row = own.get((at, False))
            older = [r for (when, deletes), r in own.items() if when < at and not deletes]
            if gone and row is not None and older:
                before = max(older, key=lambda r: r.at)
                if record[:3] != row[:3] or record[:3] == before[:3]:
                    continue
            open_ = found[-1] if found and found[-1][-1] is None else None
            if not gone and open_ is not None and tracked(open_) == tracked(record):
                open_[:3] = record[:3]
                continue
            if open_ is not None:
                open_[-1] = at
            if not gone:
                found.append([*record[:3], at, None])
        out.update(tuple(each) for each in found if each[3] != each[4])
    return out


@pytest.mark.parametrize("track", [None, ["city"]])
@given(ticks=st.lists(st.lists(RECORDS, max_size=4), max_size=5))
def test_versions_are_those_of_a_loop(track: Any, ticks: list[list[Record]]) -> None:
    flow = ps.Flow("f")
    flow.sink("out", versions(flow, track=track, on_misfit="trust_key"))
    engine, shown = ps.Engine(flow), Counter[Any]()
    for tick in ticks:
        for *row, weight in engine.tick(records=tick)["out"].raw:
            shown[tuple(row)] += weight
    tracked = (lambda row: row[1]) if track else (lambda row: row[1:3])
    given_records = [record for tick in ticks for record in tick]
    assert +shown == expected(given_records, lambda row: tuple(tracked(tuple(row))))


def versions_and_rows(on_misfit: Any) -> ps.Flow:
    flow = ps.Flow("f")
    records = flow.source("records", Record)
    row = ps.struct(id=col.id, city=col.city, phone=col.phone)
    options: Any = {"sequence": "at", "row": row, "deleted": col.op == "D", "on_misfit": on_misfit}
    flow.sink("versions", records.history("id", **options))
    flow.sink("rows", records.upsert("id", **options))
    return flow


FITTING = st.tuples(st.integers(1, 2), st.integers(0, 4), st.booleans())
"""Key, sequence and whether it deletes."""


@given(
    ticks=st.lists(st.lists(FITTING, max_size=4), max_size=6),
    cities=st.lists(st.sampled_from(["Rome", "Bonn"]), min_size=20, max_size=20),
)
def test_open_versions_are_the_rows_of_upsert(ticks: list[list[tuple[Any, ...]]], cities: list[str]) -> None:
    # Of a key and sequence, all set one row, and all deletions name one: `trust_key` may differ beyond.
    engine = ps.Engine(versions_and_rows("error"))
    shown: dict[str, Counter[Any]] = {"versions": Counter(), "rows": Counter()}
    for tick in ticks:
        given_now = [
            Record(k, cities[10 * gone + 5 * (k - 1) + at], "a", at, "ID"[gone]) for k, at, gone in tick
        ]
        made = engine.tick(records=given_now)
        for name, so_far in shown.items():
            for *found, weight in made[name].raw:
                so_far[tuple(found)] += weight
        open_ = Counter({each[:3]: n for each, n in shown["versions"].items() if n and each[-1] is None})
        assert open_ == +shown["rows"]


@pytest.mark.xfail(
    strict=True, reason="of several rows, or deletions, of a sequence history sees the greatest"
)
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
    made = ps.Engine(versions_and_rows("trust_key")).tick(records=records)
    assert [each[:3] for each in made["versions"].raw if each[-2] is None] == [
        each[:3] for each in made["rows"].raw
    ]
