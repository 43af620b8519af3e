"""Hypothesis strategies: every message of the protocol, with whatever its fields may hold."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from hypothesis import strategies as st

from headrace.compute.errors import mark_remote_file
from headrace.compute.frontier import END, LAST_TIME, Frontier
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CollectionExport,
    CollectionImport,
    CollectionTarget,
    Command,
    CopyToExport,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Epoch,
    Finishing,
    IndexExport,
    IndexImport,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    PlanBytes,
    Schedule,
    SubscribeExport,
    TimelyConfig,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    CopyToResponse,
    Dropped,
    DroppedAt,
    EncodedUpdates,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    RowCount,
    RowsResponse,
    Stashed,
    Status,
    SubscribeResponse,
)
from headrace.errors import SourceLocation, Step
from headrace.expr.code_runtime import NAN

times = st.integers(0, LAST_TIME)
frontiers = times.map(Frontier) | st.just(END)
numbers = st.integers(0, 2**64 - 1)
positions = st.integers(0, 2**32 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
keys = st.binary(min_size=16, max_size=16)
moments = st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1)).map(
    lambda d: d.replace(tzinfo=UTC, fold=0)
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.just(NAN)
    | st.text(st.characters(), max_size=10)
    | st.binary(max_size=10)
    | st.decimals(allow_nan=False)
    | st.dates(date(1, 1, 1))
    | moments
)
# Sets of one: in what order others are written depends on how they were made, and texts are compared.
values: st.SearchStrategy[Any] = (
    scalars | st.tuples(scalars, scalars) | st.frozensets(st.integers(), max_size=1)
)
rows = st.lists(values, max_size=4).map(tuple)
counted = st.lists(st.tuples(rows, st.integers(1, 2**70)), max_size=5).map(tuple)
weights = st.integers(-(2**70), 2**70).filter(bool)
updates = st.lists(st.tuples(rows, times, weights), max_size=5).map(tuple)

places = st.builds(SourceLocation, texts.map(mark_remote_file), st.integers(0, 2**31), texts)
problems = st.builds(
    Problem,
    code=ids,
    message=texts,
    retryable=st.booleans(),
    why=texts,
    fix=texts,
    id=st.none() | ids,
    time=st.none() | times,
    facts=st.dictionaries(ids, scalars, max_size=3).map(lambda facts: tuple(facts.items())),
    where=st.lists(st.builds(Step, places, texts), max_size=2).map(tuple),
)

exports = (
    st.builds(IndexExport, ids, texts, st.lists(texts, max_size=3).map(tuple))
    | st.builds(SubscribeExport, ids, texts, st.booleans())
    | st.builds(CollectionExport, ids, texts, ids)
    | st.builds(CopyToExport, ids, texts, ids)
)
dataflows = st.builds(
    Dataflow,
    plan=st.builds(PlanBytes, st.binary(max_size=30), st.binary(max_size=30)),
    collections=st.lists(st.builds(CollectionImport, texts, ids, frontiers), max_size=3).map(tuple),
    indexes=st.lists(st.builds(IndexImport, texts, ids), max_size=3).map(tuple),
    exports=st.lists(exports, max_size=3).map(tuple),
    as_of=frontiers,
    until=frontiers,
    name=texts,
)
finishings = st.builds(
    Finishing,
    order_by=st.lists(st.tuples(positions, st.booleans()), max_size=3).map(tuple),
    limit=st.none() | numbers,
    offset=numbers,
    project=st.none() | st.lists(positions, max_size=3).map(tuple),
)
maybe_number = st.none() | numbers
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        CreateTimely,
        st.builds(TimelyConfig, st.sampled_from(["here", "spark"]), st.integers(1, 1000)),
        st.builds(Epoch, numbers, numbers),
        keys,
    ),
    st.builds(CreateInstance, st.builds(InstanceConfig, texts, maybe_number, numbers)),
    st.builds(
        UpdateConfiguration,
        st.builds(Parameters, maybe_number, maybe_number, maybe_number, maybe_number),
    ),
    st.just(InitializationComplete()),
    st.builds(CreateDataflow, dataflows),
    st.builds(Schedule, ids),
    st.builds(AllowWrites, ids),
    st.builds(AllowCompaction, ids, frontiers),
    st.builds(
        Peek,
        uuid=keys,
        target=st.builds(IndexTarget, ids) | st.builds(CollectionTarget, ids),
        time=times,
        keys=st.none() | st.lists(rows, min_size=1, max_size=3).map(tuple),
        predicate=st.none() | st.binary(max_size=20),
        finishing=finishings,
    ),
    st.builds(CancelPeek, keys),
)

some_frontiers = st.tuples(ids, *[st.none() | frontiers] * 3).filter(lambda told: any(told[1:]))
answers = (
    st.builds(RowsResponse, counted)
    | st.builds(Stashed, keys, numbers, numbers, counted)
    | problems
    | st.just(Canceled())
)
encoded_updates = st.builds(
    EncodedUpdates, times, st.tuples(st.binary(max_size=9).map(lambda data: b"\xff" * 4 + data))
)
responses: st.SearchStrategy[Response] = st.one_of(
    some_frontiers.map(lambda told: Frontiers(*told)),
    st.builds(PeekResponse, keys, answers),
    st.builds(
        SubscribeResponse,
        ids,
        st.builds(BatchResponse, frontiers, frontiers, updates | encoded_updates | problems)
        | st.builds(DroppedAt, frontiers),
    ),
    st.builds(CopyToResponse, ids, st.builds(RowCount, numbers) | problems | st.just(Dropped())),
    st.builds(
        Status,
        st.none() | ids,
        texts,
        st.lists(st.tuples(texts, st.floats(allow_nan=False)), max_size=3).map(tuple),
    ),
)
