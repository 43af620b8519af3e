"""Propagation cases: a graph of signals, simultaneous values per tick, and the expected outputs.

Every case runs in all three schedules, event by event and as a replay. It passes if all of them show the
expected values and activation counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from headrace.engine.engine import Engine
from headrace.flow.flow import Flow
from headrace.flow.signal import Signal, lift
from tests.conformance.case_format import Fields, Kind, shown
from tests.conformance.case_functions import NotAFunction, function_of

SCHEDULES: tuple[Literal["hybrid", "dynamic", "static"], ...] = ("hybrid", "dynamic", "static")
ZIP = "zip"
RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""Tolerance within which two numbers count as equal."""

Fired = Mapping[str, Any]
"""Values of one tick by name."""


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """Node of a signal graph. of: names of the nodes that it reads. arguments: further fields."""

    operator: str
    of: tuple[str, ...]
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PropagationCase:
    """Propagation case. events: the values per tick. expected: output per tick, under the keys of the
    format.

    fired: number of activations per node over the whole case; nodes may be omitted.
    """

    nodes: Mapping[str, NodeDescription]
    outputs: tuple[str, ...]
    events: tuple[Fired, ...]
    expected: tuple[Fired, ...]
    fired: Mapping[str, int]


# --- reading --------------------------------------------------------------------------------


def read_case(fields: Fields) -> PropagationCase:
    described = fields.object("nodes")
    nodes = {name: _read_node(described.object(name)) for name in described}
    for name, node in nodes.items():
        for read in node.of:
            if read not in nodes:
                raise fields.build_error(f"{name!r} reads {read!r}, which is no node", "name a node")
    outputs = fields.texts("outputs")
    for name in outputs:
        if name not in nodes:
            raise fields.build_error(f"the output {name!r} is no node", "name a node")
    sources = {name for name, node in nodes.items() if node.operator == "source"}
    events = tuple(_values(event, sources) for event in fields.objects("events"))
    keys = {_key(name, nodes[name]) for name in outputs}
    expected = tuple(_values(tick, keys) for tick in fields.objects("expected"))
    if len(expected) != len(events):
        raise fields.build_error(f"there are {len(events)} events and {len(expected)} ticks in expected")
    fired: dict[str, int] = {}
    if "fired" in fields:
        counts = fields.object("fired")
        counts.only(*nodes)
        fired = {name: counts.number(name) for name in counts}
    case = PropagationCase(nodes, outputs, events, expected, fired)
    if len(_in_order(nodes)) < len(nodes):
        raise fields.build_error(
            "the nodes read each other in a circle", "only graphs without cycles can be run"
        )
    return case


def _values(event: Fields, names: set[str]) -> Fired:
    event.only(*names)
    return {name: event.value(name) for name in event}


_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "source": (),
    "lift": ("fn", "align"),
    "filter": ("fn",),
    "scan": ("fn", "init"),
    "window": ("fn", "size", "full"),
    "delay": ("n", "init"),
    "changes": (),
    "sample": (),
}
_INPUTS: Mapping[str, int] = {"filter": 1, "scan": 1, "window": 1, "delay": 1, "changes": 1, "sample": 2}


def _read_node(fields: Fields) -> NodeDescription:
    operator = fields.text("op")
    if operator not in _ARGUMENTS:
        raise fields.build_error(f"{fields.path}.op is {operator!r}", f"one of {', '.join(_ARGUMENTS)}")
    known = _ARGUMENTS[operator]
    fields.only("op", *(() if operator == "source" else ("of",)), *known)
    of = () if operator == "source" else fields.texts("of")
    wanted = _INPUTS.get(operator, len(of))
    if len(of) != wanted or (operator == "lift" and not of):
        raise fields.build_error(
            f"{fields.path} reads {len(of)} nodes, and {operator} reads {wanted or 'some'}"
        )
    arguments: dict[str, Any] = {name: fields.value(name) for name in known if name in fields}
    if "fn" in known:
        try:
            arguments["fn"] = function_of(fields.text("fn"))
        except NotAFunction as error:
            raise fields.build_error(str(error)) from None
    if operator == "lift" and fields.text("align", "latest") not in ("latest", ZIP):
        raise fields.build_error(f"{fields.path}.align is {fields.value('align')!r}", "latest or zip")
    for name in ("size", "n"):
        if name in known and fields.number(name) < 1:
            raise fields.build_error(f"{fields.path}.{name} is {fields.number(name)}", "at least 1")
    if operator == "window":
        arguments["full"] = fields.flag("full", False)
    if operator == "scan":
        fields.value("init")
    return NodeDescription(operator, of, arguments)


def _key(name: str, node: NodeDescription) -> str:
    return f"{name}*" if node.arguments.get("align") == ZIP else name


# --- building -------------------------------------------------------------------------------


def build(case: PropagationCase) -> Flow:
    """Build the flow of a case, with a sink per output."""
    flow = Flow("case", ticks="given")
    made: dict[str, Signal[Any]] = {}
    for name in _in_order(case.nodes):
        add_signal_node(flow, made, name, case.nodes[name])
    for name in case.outputs:
        flow.sink(name, made[name])
    return flow


def add_signal_node(flow: Flow, made: dict[str, Signal[Any]], name: str, node: NodeDescription) -> None:
    """Add a node to a flow and to `made`, which holds signals by name and already contains its inputs."""
    if node.operator == "source":
        made[name] = flow.signal(name, cast("type[Any]", object))
    else:
        made[name] = _BUILDERS[node.operator](name, node, [made[read] for read in node.of])


def _in_order(nodes: Mapping[str, NodeDescription]) -> list[str]:
    """Sort the nodes topologically; nodes on a cycle are omitted."""
    waiting = dict(nodes)
    order: dict[str, None] = {}
    while ready := [name for name, node in waiting.items() if all(read in order for read in node.of)]:
        for name in ready:
            order[name] = None
            del waiting[name]
    return list(order)


def _lift(name: str, node: NodeDescription, of: list[Signal[Any]]) -> Signal[Any]:
    arguments = node.arguments
    return lift(arguments["fn"], align=arguments.get("align", "latest"), name=name)(*of)


def _delay(name: str, node: NodeDescription, of: list[Signal[Any]]) -> Signal[Any]:
    initial = {"init": node.arguments["init"]} if "init" in node.arguments else {}
    return of[0].delay(node.arguments["n"], name=name, **initial)


_BUILDERS: Mapping[str, Callable[[str, NodeDescription, list[Signal[Any]]], Signal[Any]]] = {
    "lift": _lift,
    "filter": lambda name, node, of: of[0].filter(node.arguments["fn"], name=name),
    "scan": lambda name, node, of: of[0].scan(node.arguments["init"], node.arguments["fn"], name=name),
    "window": lambda name, node, of: of[0].window(
        node.arguments["size"], node.arguments["fn"], full=node.arguments["full"], name=name
    ),
    "delay": _delay,
    "changes": lambda name, node, of: of[0].changes(name=name),
    "sample": lambda name, node, of: of[0].sample(of[1], name=name),
}


# --- running --------------------------------------------------------------------------------


def run_case(case: PropagationCase) -> str:
    for schedule in SCHEDULES:
        for run in (_by_ticks, _by_replay):
            engine = Engine(build(case), schedule=schedule, count_activations=True)
            if problem := "; ".join(_problems(case, run(engine, case), engine.activations)):
                return f"{schedule}, {run.__name__.strip('_').replace('_', ' ')}: {problem}"
    return ""


def _by_ticks(engine: Engine, case: PropagationCase) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for event in case.events:
        output = engine.tick(**event)
        found.append({name: changes[0].row for name, changes in output.items() if changes})
    return found


def _by_replay(engine: Engine, case: PropagationCase) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{} for _ in case.events]
    for name, emissions in engine.replay(case.events).items():
        for tick, value in emissions:
            found[tick][name] = value
    return found


def _problems(
    case: PropagationCase, found: list[dict[str, Any]], activations: Mapping[str, int]
) -> Iterator[str]:
    for number, (wanted, values) in enumerate(zip(case.expected, found, strict=True), start=1):
        got = {_key(name, case.nodes[name]): _shown(name, case, value) for name, value in values.items()}
        if not approximately_equal(wanted, got):
            yield f"tick {number}: expected {shown(dict(wanted), 200)}, found {shown(got, 200)}"
            return
    for name, count in case.fired.items():
        if activations.get(name, 0) != count:
            yield f"{name!r} is activated {activations.get(name, 0)} times, not {count}"


def _shown(name: str, case: PropagationCase, value: Any) -> Any:
    """Convert an output for comparison, counting a zip's list of completed values as one value."""
    return [value] if case.nodes[name].arguments.get("align") == ZIP else value


def approximately_equal(one: Any, other: Any) -> bool:
    """Compare JSON values: numbers approximately, true and false exactly."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(approximately_equal(v, other[k]) for k, v in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(approximately_equal, one, other))
    return type(one) is type(other) and one == other


PROPAGATION = Kind(read_case, run_case)
