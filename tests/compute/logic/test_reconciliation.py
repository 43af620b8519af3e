"""Reconciliation: as if fresh, with as much kept as may be."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.compute.errors import IncompatibleInstance
from headrace.compute.frontier import END, Frontier
from headrace.compute.history import reduce_commands
from headrace.compute.protocol.commands import (
    AllowCompaction,
    CollectionImport,
    Command,
    CopyToExport,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Export,
    IndexExport,
    IndexImport,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    PlanBytes,
    SubscribeExport,
    UpdateConfiguration,
)
from headrace.compute.reconciliation import reconcile
from tests.compute.logic.model_replica import ModelReplica
from tests.compute.logic.random_commands import LAST, random_commands, random_reconnection

seeds = st.integers(0, 2**32).map(random.Random)
INSTANCE = CreateInstance(InstanceConfig("memory:"))


def flow(
    *exports: Export, plan: str = "p", as_of: int = 5, upper: int = 0, indexes: tuple[str, ...] = ()
) -> Dataflow:
    reads = (CollectionImport("in", "s1", Frontier(upper)),)
    imports = tuple(IndexImport(f"in {id}", id) for id in indexes)
    return Dataflow(PlanBytes(plan.encode()), reads, imports, exports, Frontier(as_of))


def u(id: str) -> IndexExport:
    return IndexExport(id, "out")


@given(seeds)
def test_a_replica_that_reconciled_says_what_a_fresh_one_says(chance: random.Random) -> None:
    installed, asked = random_reconnection(chance)
    fresh = ModelReplica(LAST).apply(asked).said()
    replica = ModelReplica(LAST).apply(installed)
    replica.reconnect(installed, asked)
    assert replica.said().serves_for(fresh)


@given(seeds)
def test_a_replica_may_reconcile_again_and_again(chance: random.Random) -> None:
    installed, asked = random_reconnection(chance)
    replica = ModelReplica(LAST).apply(installed)
    history = replica.reconnect(installed, asked).history
    replica.reconnect(list(history), asked)
    assert replica.said().serves_for(ModelReplica(LAST).apply(asked).said())


@given(seeds)
def test_told_again_what_it_was_told_a_replica_keeps_what_has_one_export_and_reads_what_is_kept(
    chance: random.Random,
) -> None:
    told = reduce_commands(random_commands(chance))
    found = reconcile(told, told)
    replaced = {id for dataflow in found.create for id in dataflow.export_ids}
    for dataflow in found.create:
        assert "compatible" not in found.reasons[dataflow.export_ids]
        first, *more = dataflow.exports
        assert more or not isinstance(first, IndexExport) or dataflow.import_ids & replaced


@given(seeds)
def test_the_decision_is_one_of_keep_drop_or_create_for_each(chance: random.Random) -> None:
    installed, asked = random_reconnection(chance)
    found = reconcile(installed, asked)
    asked_for = [c.dataflow for c in asked if isinstance(c, CreateDataflow)]
    assert sorted([*found.keep, *found.create], key=asked_for.index) == asked_for
    kept = {id for dataflow in found.keep for id in dataflow.export_ids}
    assert not kept & set(found.drop)
    assert found.reasons.keys() <= {dataflow.export_ids for dataflow in found.create}


def test_what_a_replica_was_told_is_kept_without_what_begins_and_ends_a_connection() -> None:
    config = UpdateConfiguration(Parameters(max_result_size=1))
    asked = [CreateTimely(), INSTANCE, config, CreateDataflow(flow(u("u1"))), InitializationComplete()]
    for installed in (None, [INSTANCE]):
        found = reconcile(installed, asked)
        assert found.history == (INSTANCE, config, CreateDataflow(flow(u("u1"))))


def test_uppers_of_imports_names_and_the_order_of_exports_do_not_matter() -> None:
    old = flow(u("u1"), u("u2"), upper=20)
    new = replace(flow(u("u2"), u("u1"), upper=50), name="another")
    found = reconcile([INSTANCE, CreateDataflow(old)], [INSTANCE, CreateDataflow(new)])
    assert found.keep == (new,)


def test_an_index_that_was_compacted_beyond_what_is_asked_is_built_anew() -> None:
    installed: list[Command] = [
        INSTANCE,
        CreateDataflow(flow(u("u1"), u("u2"))),
        AllowCompaction("u1", Frontier(8)),
    ]
    found = reconcile(installed, [INSTANCE, CreateDataflow(flow(u("u1"), u("u2"), as_of=7))])
    assert found.reasons == {frozenset({"u1", "u2"}): ("uncompacted",)}
    assert reconcile(installed, [INSTANCE, CreateDataflow(flow(u("u1"), u("u2"), as_of=8))]).keep


def test_a_dataflow_with_a_dropped_export_does_not_serve_for_one_that_has_it() -> None:
    installed: list[Command] = [INSTANCE, CreateDataflow(flow(u("u1"), u("u2"))), AllowCompaction("u1", END)]
    found = reconcile(installed, [INSTANCE, CreateDataflow(flow(u("u1"), u("u2")))])
    assert found.reasons == {frozenset({"u1", "u2"}): ("uncompacted",)}
    assert found.first == (AllowCompaction("u2", END),)


def test_one_that_computes_less_far_is_built_anew_and_one_that_computes_further_is_kept() -> None:
    short, long = replace(flow(u("u1")), until=Frontier(9)), flow(u("u1"))
    assert not reconcile([INSTANCE, CreateDataflow(short)], [INSTANCE, CreateDataflow(long)]).keep
    assert reconcile([INSTANCE, CreateDataflow(long)], [INSTANCE, CreateDataflow(short)]).keep


def test_a_copy_is_never_kept() -> None:
    copy = CreateDataflow(flow(CopyToExport("t1", "out", "rows.jsonl")))
    assert reconcile([INSTANCE, copy], [INSTANCE, copy]).reasons == {frozenset({"t1"}): ("copy_to_free",)}


def test_all_reasons_are_told() -> None:
    old = [CreateDataflow(flow(u("u1"))), CreateDataflow(flow(SubscribeExport("t1", "out"), indexes=("u1",)))]
    new = [
        CreateDataflow(flow(u("u1"), plan="q")),
        CreateDataflow(flow(SubscribeExport("t1", "out"), indexes=("u1",), as_of=4)),
    ]
    found = reconcile([INSTANCE, *old], [INSTANCE, *new])
    assert found.reasons[frozenset({"t1"})] == ("compatible", "subscribe_free", "dependencies_retained")


def test_an_instance_that_does_not_agree_halts_the_replica_and_nothing_else_is_said() -> None:
    other = CreateInstance(InstanceConfig("sqlite:elsewhere"))
    found = reconcile([INSTANCE, CreateDataflow(flow(u("u1")))], [other, CreateDataflow(flow(u("u1")))])
    assert isinstance(found.halt, IncompatibleInstance)
    assert found.first == found.then == found.keep == found.create == ()


def test_peeks_of_the_last_connection_do_not_matter_and_those_of_this_one_are_asked() -> None:
    created = CreateDataflow(flow(u("u1")))
    old, new = Peek(b"a", IndexTarget("u1"), 6), Peek(b"b", IndexTarget("u1"), 6)
    found = reconcile([INSTANCE, created, old], [INSTANCE, created, new])
    assert found.then == (new,)
