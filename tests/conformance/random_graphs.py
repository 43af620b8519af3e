"""Random graphs of cases: streams of small numbers and of pairs of them, through any operators.

A stream that several read gets a tee, one that nobody reads a sink. A cycle passes a
deferral, or is a `rounds`: one operator to the naive interpreter, and a cycle of
union, tee and flat_map to the runner.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

ITEM, PAIR = "item", "pair"
ADD = "lambda a, b: (a + b) % 7"
MAX = "lambda a, b: max(a, b)"
LIST = "lambda acc, x: (*acc, x)"


@dataclass(frozen=True)
class Stream:
    """An output of a node. ordered: whether the order of its rows within a tick is determined."""

    end: str
    kind: str
    ordered: bool


@dataclass
class Writing:
    """A case under construction."""

    draw: Any
    nodes: dict[str, Any] = field(default_factory=dict)
    edges: list[list[str]] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)

    def node(self, operator: str, inputs: dict[str, Stream], lifetime: Any = None, **arguments: Any) -> str:
        name = f"n{len(self.nodes)}"
        node: dict[str, Any] = {"op": operator}
        if arguments:
            node["args"] = arguments.get("args", arguments)
        if lifetime is not None:
            node["lifetime"] = lifetime
        self.nodes[name] = node
        self.edges += [[s.end, f"{name}.{port}" if port else name] for port, s in inputs.items()]
        return name

    def add(
        self, operator: str, inputs: dict[str, Stream], kind: str, ordered: bool, **others: Any
    ) -> Stream:
        stream = Stream(self.node(operator, inputs, **others), kind, ordered)
        self.streams.append(stream)
        return stream

    def pick(self, kind: str) -> Stream:
        """A stream of this kind, made of another one if need be."""
        stream = self.draw(st.sampled_from(self.streams))
        if stream.kind == kind:
            return stream
        fn = "lambda x: (x % 3, x)" if kind == PAIR else "lambda r: (r[0] * 3 + r[1]) % 7"
        return self.add("map", {"": stream}, kind, stream.ordered, fn=fn)

    def flat(self, stream: Stream, fn: str, kind: str = PAIR) -> None:
        """Nested rows as plain ones: the nested stream is no longer one to pick from."""
        self.streams.remove(stream)
        self.add("map", {"": stream}, kind, stream.ordered, fn=fn)

    def lifetime(self) -> str:
        return self.draw(st.sampled_from(["tick", "static"]))

    def lifetimes(self) -> Any:
        return self.draw(st.sampled_from(["tick", "static", ["tick", "static"], ["static", "tick"]]))


def _row_by_row(w: Writing) -> None:
    s = w.pick(ITEM)
    operator, fn = w.draw(
        st.sampled_from(
            [
                ("map", "lambda x: (x + 1) % 7"),
                ("filter", "lambda x: x % 2"),
                ("filter_map", "lambda x: x - 1 if x else None"),
                ("flat_map", "lambda x: range(x % 3)"),
                ("inspect", "lambda x: x"),
            ]
        )
    )
    w.add(operator, {"": s}, ITEM, s.ordered, fn=fn)


def _flatten(w: Writing) -> None:
    s = w.pick(PAIR)
    w.add("flatten", {"": s}, ITEM, s.ordered)


def _many(w: Writing) -> None:
    kind = w.draw(st.sampled_from([ITEM, PAIR]))
    streams = [w.pick(kind) for _ in range(w.draw(st.integers(1, 3)))]
    union = w.node("union", {})
    w.edges += [[s.end, union] for s in streams]
    w.streams.append(Stream(union, kind, all(s.ordered for s in streams)))


def _chain(w: Writing) -> None:
    a, b = w.pick(ITEM), w.pick(ITEM)
    if w.draw(st.booleans()) and a.ordered and b.ordered:
        w.add("chain_first_n", {"0": a, "1": b}, ITEM, True, n=w.draw(st.integers(0, 4)))
    else:
        w.add("chain", {"0": a, "1": b}, ITEM, a.ordered and b.ordered)


def _split(w: Writing) -> None:
    if w.draw(st.booleans()):
        s = w.pick(ITEM)
        name = w.node("partition", {"": s}, ports=["p", "q"], fn="lambda x: 'p' if x < 3 else 'q'")
        ports = ["p", "q"]
    else:
        s = w.pick(PAIR)
        name, ports = w.node("unzip", {"": s}), ["0", "1"]
    w.streams += [Stream(f"{name}.{port}", ITEM, s.ordered) for port in ports]


def _join(w: Writing) -> None:
    operator = w.draw(st.sampled_from(["join", "join_set", "semi_join"]))
    s = w.add(operator, {"0": w.pick(PAIR), "1": w.pick(PAIR)}, PAIR, False, lifetime=w.lifetimes())
    if operator != "semi_join":
        w.flat(s, "lambda r: (r[0], (r[1][0] + r[1][1]) % 5)")


def _fused(w: Writing) -> None:
    operator, sides = w.draw(
        st.sampled_from([("join_fused", "01"), ("join_fused_left", "0"), ("join_fused_right", "1")])
    )
    init = {"init": "lambda: 1"} if w.draw(st.booleans()) else {}
    arguments = {side: {**init, "fn": ADD} for side in sides}
    inputs = {"0": w.pick(PAIR), "1": w.pick(PAIR)}
    s = w.add(operator, inputs, PAIR, False, lifetime=w.lifetimes(), args=arguments)
    w.flat(s, "lambda r: (r[0], (r[1][0] + r[1][1]) % 5)")


def _lattice_join(w: Writing) -> None:
    inputs = {"0": w.pick(PAIR), "1": w.pick(PAIR)}
    arguments = {"0": {"fn": MAX}, "1": {"fn": MAX}}
    s = w.add("lattice_join", inputs, PAIR, False, lifetime=w.lifetimes(), args=arguments)
    w.flat(s, "lambda r: (r[0], (r[1][0] + r[1][1]) % 5)")


def _cross(w: Writing) -> None:
    operator = w.draw(st.sampled_from(["cross_join", "cross_join_set"]))
    w.add(operator, {"0": w.pick(ITEM), "1": w.pick(ITEM)}, PAIR, False, lifetime=w.lifetimes())


def _without(w: Writing) -> None:
    if w.draw(st.booleans()):
        s, neg = w.pick(PAIR), w.pick(ITEM)
        w.add("anti_join", {"pos": s, "neg": neg}, PAIR, s.ordered, lifetime=w.lifetimes())
    else:
        s, neg = w.pick(ITEM), w.pick(ITEM)
        w.add("difference", {"pos": s, "neg": neg}, ITEM, s.ordered, lifetime=w.lifetimes())


def _by_place(w: Writing) -> None:
    a, b = w.pick(ITEM), w.pick(ITEM)
    if not (a.ordered and b.ordered):
        return
    operator = w.draw(st.sampled_from(["zip", "zip_longest", "cross_singleton"]))
    ports = ("input", "single") if operator == "cross_singleton" else ("0", "1")
    lifetime = w.lifetimes() if operator == "zip" else None
    s = w.add(operator, dict(zip(ports, (a, b), strict=True)), PAIR, True, lifetime=lifetime)
    if operator == "zip_longest":
        w.flat(s, "lambda r: tuple(-1 if v is None else v for v in r)")


def _fold(w: Writing) -> None:
    s = w.pick(ITEM)
    operator = w.draw(
        st.sampled_from(
            ["fold", "fold_no_replay", "reduce", "reduce_no_replay", "lattice_fold", "lattice_reduce"]
        )
    )
    init = {"init": "lambda: 0"} if "fold" in operator else {}
    fn = MAX if operator.startswith("lattice") else ADD
    if s.ordered and operator == "fold" and w.draw(st.booleans()):
        listed = w.add("fold", {"": s}, ITEM, True, lifetime=w.lifetime(), init="lambda: ()", fn=LIST)
        w.flat(listed, "lambda r: sum(v * (n + 1) for n, v in enumerate(r)) % 11", ITEM)
        return
    w.add(operator, {"": s}, ITEM, True, lifetime=w.lifetime(), **init, fn=fn)


def _fold_keyed(w: Writing) -> None:
    s, lifetime = w.pick(PAIR), w.lifetime()
    ordered = s.ordered and lifetime == "tick"
    if w.draw(st.booleans()):
        w.add("fold_keyed", {"": s}, PAIR, ordered, lifetime=lifetime, init="lambda: 2", fn=ADD)
    else:
        w.add("reduce_keyed", {"": s}, PAIR, ordered, lifetime=lifetime, fn=ADD)


def _in_order(w: Writing) -> None:
    s = w.pick(ITEM)
    if not s.ordered:
        return
    operator = w.draw(st.sampled_from(["scan", "state", "unique", "enumerate"]))
    if operator == "scan":
        fn = "lambda acc, x: None if acc > 20 else (acc + x, (acc + x) % 7)"
        w.add("scan", {"": s}, ITEM, True, lifetime=w.lifetime(), init="lambda: 0", fn=fn)
    elif operator == "state":
        w.add("state", {"": s}, ITEM, True, lifetime=w.lifetime(), init="lambda: 0", fn=MAX)
    elif operator == "unique":
        w.add("unique", {"": s}, ITEM, True, lifetime=w.lifetime())
    else:
        w.add("enumerate", {"": s}, PAIR, True, lifetime=w.lifetime())


def _sort(w: Writing) -> None:
    s = w.pick(ITEM)
    if s.ordered and w.draw(st.booleans()):
        w.add("sort_by_key", {"": s}, ITEM, True, fn="lambda x: x % 2")
    else:
        w.add("sort", {"": s}, ITEM, True)


def _again(w: Writing) -> None:
    s = w.pick(ITEM)
    operator = w.draw(st.sampled_from(["persist", "multiset_delta", "next_stratum", "identity", "null"]))
    w.add(operator, {"": s}, ITEM, s.ordered)


def _kept(w: Writing) -> None:
    s = w.pick(ITEM)
    if not s.ordered:
        return
    if w.draw(st.booleans()):
        fn = "lambda x: ('delete', x - 1) if x % 3 == 2 else ('persist', x)"
        commands = w.add("map", {"": s}, ITEM, True, fn=fn)
        w.streams.remove(commands)
        w.add("persist_mut", {"": commands}, ITEM, True)
    else:
        fn = "lambda x: ('delete', x % 2) if x % 3 == 2 else ('persist', x % 2, x)"
        commands = w.add("map", {"": s}, ITEM, True, fn=fn)
        w.streams.remove(commands)
        w.add("persist_mut_keyed", {"": commands}, PAIR, True)


def _signal(w: Writing) -> None:
    s, signal = w.pick(ITEM), w.pick(ITEM)
    rare = w.add("filter", {"": signal}, ITEM, signal.ordered, fn="lambda x: x == 3")
    if w.draw(st.booleans()):
        w.add("defer_signal", {"input": s, "signal": rare}, ITEM, s.ordered)
    else:
        inputs = {"input": s, "signal": rare}
        w.add("lattice_fold_batch", inputs, ITEM, True, init="lambda: 0", fn=MAX)


def _later(w: Writing) -> None:
    s = w.pick(ITEM)
    w.add(w.draw(st.sampled_from(["defer_tick", "defer_tick_lazy"])), {"": s}, ITEM, s.ordered)


def _loop_across_ticks(w: Writing) -> None:
    """A cycle: what comes goes round one tick later, each number once per tick."""
    s = w.pick(ITEM)
    if not s.ordered:
        return
    union = w.node("union", {})
    w.edges.append([s.end, union])
    once = w.node("unique", {"": Stream(union, ITEM, True)})
    later = w.node(w.draw(st.sampled_from(["defer_tick", "defer_tick_lazy"])), {"": Stream(once, ITEM, True)})
    down = w.node("filter_map", {"": Stream(later, ITEM, True)}, fn="lambda x: x - 1 if x > 0 else None")
    w.edges.append([down, union])
    w.streams.append(Stream(once, ITEM, True))


def _loop_within_a_tick(w: Writing) -> None:
    s = w.pick(ITEM)
    w.add("rounds", {"": s}, ITEM, False, fn="lambda x: [x - 1, x - 2] if x > 1 else []")


OPERATORS = (
    _row_by_row, _flatten, _many, _chain, _split, _join, _fused, _lattice_join, _cross, _without,
    _by_place, _fold, _fold_keyed, _in_order, _sort, _again, _kept, _signal, _later, _loop_across_ticks,
    _loop_within_a_tick,
)  # fmt: skip
STATELESS = (_row_by_row, _flatten, _many, _split)


@st.composite
def graphs(draw: Any, operators: Any = OPERATORS) -> tuple[dict[str, Any], dict[str, Any]]:
    """A case without what is expected: for the naive interpreter, and for the runner."""
    w = Writing(draw)
    for _ in range(draw(st.integers(1, 2))):
        w.add("source", {}, ITEM, True)
    for _ in range(draw(st.integers(1, 6))):
        draw(st.sampled_from(operators))(w)
    sources = [name for name, node in w.nodes.items() if node["op"] == "source"]
    outputs = _end(w)
    numbers = st.lists(st.integers(0, 6), max_size=4)
    a_tick = st.fixed_dictionaries(dict.fromkeys(sources, numbers))
    ticks = draw(st.lists(a_tick, min_size=1, max_size=4))
    case = {"name": "random", "nodes": w.nodes, "edges": w.edges, "inputs": sources, "ticks": ticks}
    case["outputs"] = list(outputs)
    case["order"] = "exact" if all(outputs.values()) else "multiset"
    return case, _with_cycles(case)


def _end(w: Writing) -> dict[str, bool]:
    """Tees where several read, sinks where nobody does; whether each sink's rows are in order."""
    ends = [source for source, _ in w.edges]
    for end in {e for e in ends if ends.count(e) > 1}:
        tee = w.node("tee", {})
        w.edges = [[tee if source == end else source, target] for source, target in w.edges]
        w.edges.append([end, tee])
    outputs: dict[str, bool] = {}
    for stream in w.streams:
        if not any(source == stream.end for source, _ in w.edges):
            outputs[w.node("sink", {"": stream})] = stream.ordered
    return outputs


def _with_cycles(case: dict[str, Any]) -> dict[str, Any]:
    """The same case, with each `rounds` as a cycle."""
    case = deepcopy(case)
    for name, node in list(case["nodes"].items()):
        if node["op"] == "rounds":
            case["nodes"] |= {
                name: {"op": "union"},
                f"{name}t": {"op": "tee"},
                f"{name}f": {"op": "flat_map", "args": node["args"]},
            }
            case["edges"] = [[f"{name}t" if a == name else a, b] for a, b in case["edges"]]
            case["edges"] += [[name, f"{name}t"], [f"{name}t", f"{name}f"], [f"{name}f", name]]
    return case
