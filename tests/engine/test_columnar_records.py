"""Upserts and histories in large ticks: the same answers, the same state, the same failures as in rows."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("polars")

import headrace as hr
from headrace import col
from headrace.columns.columns import ColumnarDeclined
from headrace.engine.program import compile_program
from headrace.expr.row_classes import from_user
from headrace.expr.types import DecimalType
from tests.engine.test_columnar import ALWAYS, Run, noting_declines
from tests.properties.effort import examples

Stream = hr.Stream[Any, Any, Any, Any]


class Record(NamedTuple):
    """A record. An operation "D" deletes the row that it has, "K" the row of its key."""

    id: int | None
    city: str | None
    score: float
    price: Annotated[Decimal, DecimalType(8, 2)]
    at: int
    op: str


def record(id: int | None, city: str | None, at: int, op: str = "I", score: float = 0.5) -> Record:
    return Record(id, city, score, Decimal(3), at, op)


OWN = hr.struct(id=col.id, city=col.city, score=col.score, price=col.price)
DATED = hr.struct(id=col.id, city=col.city, at=col.at)
DELETES: Any = {"row": hr.when(col.op != "K", OWN), "deleted": col.op == "D"}

OPTIONS: dict[str, dict[str, Any]] = {
    "records": {},
    "rows": {"row": OWN},
    "deleted": {"row": OWN, "deleted": col.op == "D"},
    "deleted or null": DELETES,
    "null": {"row": hr.when(col.op == "I", OWN)},
    "dated": {"row": DATED, "deleted": col.op != "I"},
}


def upserted(sequence: str = "at", **options: Any) -> Callable[[Stream], Stream]:
    return lambda records: records.upsert("id", sequence=sequence, **options)


def history(sequence: str = "at", **options: Any) -> Callable[[Stream], Stream]:
    return lambda records: records.history("id", sequence=sequence, **options)


def of_commits(
    build: Callable[..., Callable[[Stream], Stream]], **options: Any
) -> Callable[[Stream], Stream]:
    def made(records: Stream) -> Stream:
        commits = records.with_columns(_commit_version=col.at)
        return build("_commit_version", **options)(commits)

    return made


def check_alike(build: Callable[[Stream], Stream], ticks: list[list[Record]], large: list[bool]) -> int:
    """Compare a flow in rows, in columns and in both by turns; return how many ticks ran in columns."""
    flow = hr.Flow("records")
    flow.sink("out", build(flow.source("records", Record)))
    program = compile_program(flow.graph())
    inside = from_user(program.graph.nodes[program.graph.sources["records"]].schema, what="records")
    in_rows, always, *mixed = (Run(program, each) for each in (None, ALWAYS, ALWAYS, ALWAYS))
    in_columns = 0
    for tick, is_large in zip(ticks, large, strict=True):
        given_now = {"records": inside(tick)}
        wanted = in_rows.tick(given_now)
        with noting_declines() as declines:
            assert always.tick(given_now) == wanted
        in_columns += declines == [None]
        assert all(why is None or isinstance(why, ColumnarDeclined) for why in declines)
        for run, in_turn in zip(mixed, (is_large, not is_large), strict=True):
            run.machine.least = 1 if in_turn else 10**9
            assert run.tick(given_now) == wanted
        if isinstance(wanted, str):
            return in_columns
        assert declines == [None] * bool(tick)
        for run in (always, *mixed):
            assert _state(run) == _state(in_rows)
    return in_columns


def _state(run: Run) -> dict[str, Any]:
    """The state, and calendars without the order in which they hold what is due."""
    settled: Any = run.settled()
    return {
        name: {k: sorted(v) if isinstance(v, list) else v for k, v in slot.items()}
        for name, slot in settled.items()
    }


SCORES = st.sampled_from([0.0, -0.0, 1.5, float("nan")])


def records(keys: int, sequences: int, ops: str) -> st.SearchStrategy[Record]:
    return st.builds(
        Record,
        st.sampled_from([None, *range(keys)]),
        st.sampled_from(["Rome", "Bonn", None]),
        SCORES,
        st.sampled_from([Decimal(3), Decimal("0.50")]),
        st.integers(0, sequences),
        st.sampled_from(ops),
    )


FEW = records(1, 3, "IIDK")
MANY = records(3, 12, "IIIDK")
TICKS = st.lists(st.tuples(st.lists(FEW | MANY, max_size=8), st.booleans()), min_size=1, max_size=5)


BUILDS = {
    "upsert": upserted,
    "history": history,
    "upsert of commits": partial(of_commits, upserted),
    "history of commits": partial(of_commits, history),
    "upsert that forgets": partial(upserted, tombstones=3),
    "upsert that leaves out": lambda **options: upserted(**{**options, "on_misfit": "dead_letter"}),
}


@pytest.mark.parametrize("build", BUILDS)
@examples(0.6)
@given(
    ticks=TICKS,
    rows=st.sampled_from([*OPTIONS]),
    policy=st.sampled_from(["error", "trust_key", "trust_key"]),
    track=st.sampled_from([None, ["id"], []]),
)
def test_records_mean_the_same_in_columns(build: str, rows: str, policy: str, track: Any, ticks: Any) -> None:
    options = {**OPTIONS[rows], "on_misfit": policy}
    if "history" in build:
        options["track"] = track
    check_alike(BUILDS[build](**options), [tick for tick, _ in ticks], [large for _, large in ticks])


@pytest.mark.parametrize("build", ["upsert", "history"])
def test_a_record_of_nan_meets_the_one_of_its_sequence(build: str) -> None:
    flow = hr.Flow("nan")
    records = flow.source("records", Record)
    flow.sink("out", getattr(records, build)("score", sequence="at", on_misfit="trust_key"))
    answers: list[str] = []
    for columnar in ("never", "always"):
        engine = hr.Engine(flow, columnar=columnar)
        ticks = [[record(1, city, 1, score=float("nan"))] for city in ("a", "b", "c")]
        answers.append(repr([engine.tick(records=tick)["out"] for tick in ticks]))
    assert answers[0] == answers[1]
