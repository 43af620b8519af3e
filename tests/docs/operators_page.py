"""The page docs/reference/operators/index.md: per operator how it runs on each engine.

Nothing here is known of single operators: how one runs is read from the plans of the flows in
`tests.operators.examples`, and the reason of a refusal from the refusal.
"""

from __future__ import annotations

from headrace import operators
from headrace.analysis import analyse
from headrace.compute.plans.servable import unservable_reason
from headrace.engine.flow_parts import live_consumers
from headrace.errors import NotOnSpark
from headrace.graph.node import FlowGraph, Operator
from headrace.graph.operator_declarations import SIGNAL
from headrace.operators import all_operators
from headrace.operators.join.join import Join
from headrace.spark.batch.batch_plan import BatchPlan, Loop, Native, Subplan, plan_batch
from headrace.spark.batch.loops import why_in_one_task
from headrace.spark.batch.subplans import distribution_of, loop_flow
from headrace.spark.placing.earliest_stages import cycles_in_order, unpartitionable_reason
from headrace.spark.placing.pushdown import insert_partial_operators
from headrace.spark.placing.row_placement import Broadcast, ByBucket, ByKey, Gather, Route
from headrace.spark.placing.stages import Stage, cut_stages
from headrace.spark.refusals import Mode, refusal
from tests.docs.pages import GENERATED
from tests.operators.examples import EXAMPLES, example

HEAD = f"""\
# Operators and engines

{GENERATED}

What operators do: [rows](rows.md), [joins](joins.md), [aggregates](aggregates.md), [sets](sets.md),
[order](order.md), [folds](folds.md), [ticks](ticks.md), [event time](event-time.md),
[recursion](recursion.md), [signals](signals.md). All of them run in-process. On Spark, each runs with
the same answers, or is refused with a reason and a way out when the flow is planned; so it is
on replicas. The table below is what the planners say.

**In a stream on Spark**, an operator runs *wherever rows are* (in the task that read them), *by key*
(on the shard that owns the key) or *on one shard*. *Added up before*: tasks aggregate first, so that
fewer rows travel. *In rounds*: see [recursion](recursion.md).

**In a batch on Spark**, an operator is *native* (DataFrame columns), an *Arrow function* (rows in
tasks), or on a *subplan*, which the in-process engine runs inside tasks: *by key* in all of them, or
*in one task*, whose memory must hold its rows. A batch reads all input in one tick, then runs the ticks
that deferred rows ask for, then ends the input, which closes windows. Its sinks get multisets: an order
that no operator reads is dropped.

Operators that read the order of rows, and those that show where ticks end, bring the native operators
between them and the source into a subplan in one task. Filters and selections of expressions stay
native.

**On replicas**, an operator is *served* if its answer at a time is a function of the rows at that time
(see [plans](../plans.md#which-flows-can-be-served)).

Columns of type `object` can't leave a task. `inspect` calls its function in workers, again wherever a
task repeats.

"""


def page() -> str:
    lines = [HEAD, "| operator | class | Spark, stream | Spark, batch | replicas |", "|---|---|---|---|---|"]
    reasons: dict[str, int] = {}
    # A source of another kind is no operator of its own to users.
    for cls in sorted((cls for cls in all_operators() if "kind" in vars(cls)), key=_name):
        kind = f"`{cls.kind}`"
        cells = [_cell(cls, mode, reasons) for mode in ("stream", "batch")]
        lines.append(f"| {kind} | `{_name(cls)}` | {cells[0]} | {cells[1]} | {_on_replicas(cls, reasons)} |")
    notes = [f"{number}. {reason}" for reason, number in reasons.items()]
    return "\n".join([*lines, "", "Refused:", "", *notes]) + "\n"


def _name(cls: type[Operator]) -> str:
    return f"{cls.__module__.removeprefix(f'{operators.__name__}.')}.{cls.__name__}"


def _cell(cls: type[Operator], mode: Mode, reasons: dict[str, int]) -> str:
    ways: list[str] = []
    refused = refusal.dispatch(cls)(None, mode)
    if refused is not None:
        return _refused(refused.why, refused.fix, reasons)
    for label in EXAMPLES[cls]:
        try:
            found = _ways(cls, mode, f"{cls.kind}: {label}")
        except NotOnSpark as error:
            found = [_refused(error.why, error.fix, reasons)]
        ways += found
    return "; ".join(dict.fromkeys(ways))


def _on_replicas(cls: type[Operator], reasons: dict[str, int]) -> str:
    if cls not in EXAMPLES:  # operators of signals, which are refused as such
        return _refused(SIGNAL.why, SIGNAL.fix, reasons)
    found: list[str] = []
    for label in EXAMPLES[cls]:
        for node in example(f"{cls.kind}: {label}").graph().nodes:
            if type(node.operator) is cls:
                reason = unservable_reason(node.operator)
                found.append(_refused(reason.why, reason.fix, reasons) if reason else "served")
    return "; ".join(dict.fromkeys(found))


def _refused(why: str | None, fix: str | None, reasons: dict[str, int]) -> str:
    told = " ".join(f"{why} The way out: {fix}.".split())
    number = reasons.setdefault(told, len(reasons) + 1)
    return f"refused ({number})"


def _ways(cls: type[Operator], mode: Mode, name: str) -> list[str]:
    graph = example(name).graph()
    consumers = live_consumers(graph)
    nodes = [n.id for n in graph.nodes if type(n.operator) is cls and (consumers[n.id] or n.inputs)]
    assert nodes, f"the example {name!r} has no {cls.__name__}"
    if mode == "batch":
        plan = plan_batch(graph)
        return [_in_batch(plan, n) for n in nodes]
    return [_in_stream(graph, n) for n in nodes]


# --- batch ----------------------------------------------------------------------------------


def _in_batch(plan: BatchPlan, n: int) -> str:
    for unit in plan.units:
        match unit:
            case Native(node) if node == n:
                return "native"
            case Loop(nodes) if n in nodes:
                why_not = why_in_one_task(loop_flow(plan.graph, nodes).graph)
                return "loop in one task" if why_not else "loop in one task, or in rounds"
            case Subplan(nodes) if n in nodes:
                return _BY.get(type(distribution_of(plan, unit)).__name__, "")
    return "left out: the input ends, and nothing waits for time"


_BY = {"Anywhere": "Arrow function", "ByKeys": "subplan by key", "InOneTask": "subplan in one task"}


# --- stream ---------------------------------------------------------------------------------


def _in_stream(graph: FlowGraph, n: int) -> str:
    whole = insert_partial_operators(graph)
    if any(n in loop for loop in _loops_in_rounds(graph)):
        return "on one shard, or by key in rounds"
    for stage in cut_stages(whole, 2).stages:
        for at, origin in enumerate(stage.origins):
            if origin == n:
                how = _placed(stage, at)
                return how if len(whole.nodes) == len(graph.nodes) else f"{how}, added up before"
    return "left out: nobody reads it"


def _loops_in_rounds(graph: FlowGraph) -> list[list[int]]:
    facts = analyse(graph).facts
    return [
        loop
        for loop in cycles_in_order(graph)
        if len(loop) > 1 and not unpartitionable_reason(graph, loop, facts)
    ]


def _placed(stage: Stage, at: int) -> str:
    if stage.number == 0:
        return "wherever rows are"
    routes = _routes(stage, at)
    keyed = any(isinstance(route, ByKey | ByBucket) for route in routes)
    if any(isinstance(route, Broadcast) for route in routes):
        sent = "right side" if isinstance(stage.graph.nodes[at].operator, Join) else "watermarks"
        return f"by key, {sent} on all shards" if keyed else "on all shards"
    return "by key" if keyed else "on one shard"


def _routes(stage: Stage, at: int) -> list[Route]:
    """How the rows that a node reads have come to its stage."""
    arriving = {e.name: e.route for e in stage.arriving}
    routes: list[Route] = []
    seen, waiting = {at}, [at]
    while waiting:
        node = stage.graph.nodes[waiting.pop()]
        name = getattr(node.operator, "name", None)
        if not node.inputs and name in arriving:
            routes.append(arriving[name])
        for i in node.inputs:
            if i not in seen:
                seen.add(i)
                waiting.append(i)
    return routes or [Gather()]
