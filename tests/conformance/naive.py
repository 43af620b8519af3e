"""What a graph of a case shows, computed again from all rows so far in every tick. Kept stupid.

Nothing here is shared with the engine or with the runner. It knows graphs whose
cycles all pass a deferral, and is told of every other cycle as one operator: `rounds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

Row = Any
Rows = list[Row]
Now = dict[str, Rows]
"""What entered each port in this tick."""


class Node:
    """An operator that remembers all that ever entered it."""

    def __init__(self, operator: str, arguments: dict[str, Any], lifetime: Any) -> None:
        self.operator = operator
        self.arguments = arguments
        self.lifetimes = lifetime if isinstance(lifetime, list) else [lifetime or "tick"] * 2
        self.before: list[Now] = []
        """Of each earlier tick what entered."""

    def seen(self, now: Now, port: str, number: int = 0) -> Rows:
        """What an input remembers in this tick."""
        if self.lifetimes[number] == "tick":
            return now.get(port, [])
        return self.all(now, port)

    def all(self, now: Now, port: str) -> Rows:
        return [row for tick in [*self.before, now] for row in tick.get(port, [])]

    def earlier(self, port: str = "") -> Rows:
        """What a static input remembers of earlier ticks."""
        if self.lifetimes[0] == "tick":
            return []
        return [row for tick in self.before for row in tick.get(port, [])]


def run(case: dict[str, Any]) -> list[dict[str, Rows]]:
    """Per tick what each output sees."""
    nodes = {
        name: Node(
            node["op"], {k: _argument(v) for k, v in node.get("args", {}).items()}, node.get("lifetime")
        )
        for name, node in case["nodes"].items()
    }
    edges = [[(*end.split("."), "")[:2] for end in edge] for edge in case["edges"]]
    shown: list[dict[str, Rows]] = []
    deferred: dict[str, Rows] = {}
    for tick in case["ticks"]:
        made: dict[str, dict[str, Rows]] = {}

        def entering(name: str, made: dict[str, dict[str, Rows]] = made) -> Now:
            """In the order in which the edges are written."""
            now: Now = {}
            for (source, port), (target, into) in edges:
                if target == name:
                    now.setdefault(into, []).extend(made[source].get(port, made[source].get("", [])))
            return now

        while len(made) < len(nodes):
            name = next(n for n in nodes if n not in made and _ready(n, made, edges, nodes))
            node = nodes[name]
            if node.operator == "source":
                answer: Any = [_tuples(row) for row in tick.get(name, [])]
            elif node.operator in DEFERRING:
                answer = deferred.get(name, [])
            else:
                answer = OPERATORS[node.operator](node, entering(name))
            made[name] = answer if isinstance(answer, dict) else {"": answer}
        shown.append({name: entering(name).get("", []) for name in case["outputs"]})
        deferred = {name: entering(name).get("", []) for name in nodes if nodes[name].operator in DEFERRING}
        for name, node in nodes.items():
            node.before.append(entering(name))
    return shown


DEFERRING = ("defer_tick", "defer_tick_lazy")


def _ready(name: str, made: dict[str, Any], edges: list[Any], nodes: dict[str, Node]) -> bool:
    if nodes[name].operator in DEFERRING:
        return True
    return all(source in made for (source, _), (target, _) in edges if target == name)


def _argument(value: Any) -> Any:
    if isinstance(value, str):
        return eval(value)
    if isinstance(value, dict):
        return {name: eval(text) for name, text in value.items()}
    return value


def _tuples(row: Any) -> Any:
    return tuple(map(_tuples, row)) if isinstance(row, list) else row


def _folded(rows: Rows, functions: dict[str, Any]) -> Rows:
    """One value of all rows; of none the initial one, if there is one."""
    if "init" in functions:
        value = functions["init"]()
    elif not rows:
        return []
    else:
        value, *rows = rows
    for row in rows:
        value = functions["fn"](value, row)
    return [value]


def _per_key(rows: Rows, functions: dict[str, Any]) -> Rows:
    keys = list(dict.fromkeys(key for key, _ in rows))
    return [(key, *_folded([v for k, v in rows if k == key], functions)) for key in keys]


def _join(left: Rows, right: Rows) -> Rows:
    return [(key, (one, other)) for key, one in left for also, other in right if key == also]


def _cross(left: Rows, right: Rows) -> Rows:
    return [(one, other) for one in left for other in right]


def _once(rows: Rows) -> Rows:
    return list(dict.fromkeys(rows))


def _pairing(make: Callable[[Rows, Rows], Rows], *, sets: bool = False) -> Callable[[Node, Now], Rows]:
    def answer(node: Node, now: Now) -> Rows:
        left, right = node.seen(now, "0", 0), node.seen(now, "1", 1)
        return make(_once(left), _once(right)) if sets else make(left, right)

    return answer


def _fused(*sides: str) -> Callable[[Node, Now], Rows]:
    def answer(node: Node, now: Now) -> Rows:
        left, right = (
            _per_key(rows, node.arguments[port]) if port in sides else rows
            for port, rows in (("0", node.seen(now, "0", 0)), ("1", node.seen(now, "1", 1)))
        )
        return _join(left, right)

    return answer


def _negative(node: Node, now: Now) -> Rows:
    held_back = node.seen(now, "neg", 1)
    return [
        row
        for row in node.seen(now, "pos", 0)
        if (row[0] if node.operator == "anti_join" else row) not in held_back
    ]


def _zip(node: Node, now: Now) -> Rows:
    """Again from the first tick on: what is left over stays where the side is static."""
    left: Rows = []
    right: Rows = []
    made: Rows = []
    for tick in [*node.before, now]:
        left, right = left + tick.get("0", []), right + tick.get("1", [])
        made = list(zip(left, right, strict=False))
        left, right = left[len(made) :], right[len(made) :]
        left = left if node.lifetimes[0] == "static" else []
        right = right if node.lifetimes[1] == "static" else []
    return made


def _zip_longest(node: Node, now: Now) -> Rows:
    left, right = now.get("0", []), now.get("1", [])
    longest = range(max(len(left), len(right)))
    return [(left[n] if n < len(left) else None, right[n] if n < len(right) else None) for n in longest]


def _scan(node: Node, now: Now) -> Rows:
    value, ended, made = node.arguments["init"](), False, []
    earlier = node.earlier()
    for at, row in enumerate([*earlier, *now.get("", [])]):
        step = None if ended else node.arguments["fn"](value, row)
        if step is None:
            ended = True
            continue
        value = step[0]
        if at >= len(earlier):
            made.append(step[1])
    return made


def _state(node: Node, now: Now) -> Rows:
    value, made = node.arguments["init"](), []
    earlier = node.earlier()
    for at, row in enumerate([*earlier, *now.get("", [])]):
        grown = node.arguments["fn"](value, row)
        if grown != value and at >= len(earlier):
            made.append(row)
        value = grown
    return made


def _kept(node: Node, now: Now) -> Rows:
    kept: Rows = []
    for word, *row in node.all(now, ""):
        if node.operator == "persist_mut":
            kept = [*kept, row[0]] if word == "persist" else [k for k in kept if k != row[0]]
        else:
            kept = [*kept, tuple(row)] if word == "persist" else [k for k in kept if k[0] != row[0]]
    return kept


def _delta(node: Node, now: Now) -> Rows:
    before, made = Counter(node.before[-1].get("", []) if node.before else []), []
    for row in now.get("", []):
        if before[row]:
            before[row] -= 1
        else:
            made.append(row)
    return made


def _released(node: Node, now: Now) -> Rows:
    """All since the last signal, in a tick with a signal."""
    since: Rows = []
    for tick in node.before:
        since = [] if tick.get("signal") else since + tick.get("input", [])
    return since + now.get("input", []) if now.get("signal") else []


def _batch(node: Node, now: Now) -> Rows:
    return _folded(_released(node, now), node.arguments) if now.get("signal") else []


def _rounds(node: Node, now: Now) -> Rows:
    """A cycle: what enters it, what its function makes of that, and so on."""
    made, new = [], now.get("", [])
    while new:
        made += new
        new = [row for old in new for row in node.arguments["fn"](old)]
    return made


def _no_replay(node: Node, now: Now) -> Rows:
    first = node.operator == "fold_no_replay" and not node.before
    return _folded(node.seen(now, ""), node.arguments) if first or now.get("") else []


def _first(node: Node, now: Now) -> Rows:
    return [(row, now["single"][0]) for row in now.get("input", [])] if now.get("single") else []


OPERATORS: dict[str, Callable[[Node, Now], Any]] = {
    "source_iter": lambda node, now: [] if node.before else list(map(_tuples, node.arguments["items"])),
    "initialize": lambda node, now: [] if node.before else [()],
    "null": lambda node, now: [],
    "sink": lambda node, now: [],
    "map": lambda node, now: [node.arguments["fn"](row) for row in now.get("", [])],
    "filter": lambda node, now: [row for row in now.get("", []) if node.arguments["fn"](row)],
    "filter_map": lambda node, now: [r for r in map(node.arguments["fn"], now.get("", [])) if r is not None],
    "flat_map": lambda node, now: [r for row in now.get("", []) for r in node.arguments["fn"](row)],
    "flatten": lambda node, now: [item for row in now.get("", []) for item in row],
    "identity": lambda node, now: now.get("", []),
    "inspect": lambda node, now: now.get("", []),
    "next_stratum": lambda node, now: now.get("", []),
    "tee": lambda node, now: now.get("", []),
    "union": lambda node, now: now.get("", []),
    "partition": lambda node, now: {
        port: [row for row in now.get("", []) if node.arguments["fn"](row) == port]
        for port in node.arguments["ports"]
    },
    "unzip": lambda node, now: {"0": [r[0] for r in now.get("", [])], "1": [r[1] for r in now.get("", [])]},
    "chain": lambda node, now: now.get("0", []) + now.get("1", []),
    "chain_first_n": lambda node, now: (now.get("0", []) + now.get("1", []))[: node.arguments["n"]],
    "join": _pairing(_join),
    "join_set": _pairing(_join, sets=True),
    "cross_join": _pairing(_cross),
    "cross_join_set": _pairing(_cross, sets=True),
    "semi_join": _pairing(lambda left, right: [row for row in left if row[0] in {key for key, _ in right}]),
    "cross_singleton": _first,
    "anti_join": _negative,
    "difference": _negative,
    "join_fused": _fused("0", "1"),
    "join_fused_left": _fused("0"),
    "join_fused_right": _fused("1"),
    "lattice_join": _fused("0", "1"),
    "zip": _zip,
    "zip_longest": _zip_longest,
    "fold": lambda node, now: _folded(node.seen(now, ""), node.arguments),
    "reduce": lambda node, now: _folded(node.seen(now, ""), node.arguments),
    "lattice_fold": lambda node, now: _folded(node.seen(now, ""), node.arguments),
    "lattice_reduce": lambda node, now: _folded(node.seen(now, ""), node.arguments),
    "fold_no_replay": _no_replay,
    "reduce_no_replay": _no_replay,
    "fold_keyed": lambda node, now: _per_key(node.seen(now, ""), node.arguments),
    "reduce_keyed": lambda node, now: _per_key(node.seen(now, ""), node.arguments),
    "scan": _scan,
    "state": _state,
    "lattice_fold_batch": _batch,
    "sort": lambda node, now: sorted(now.get("", [])),
    "sort_by_key": lambda node, now: sorted(now.get("", []), key=node.arguments["fn"]),
    "unique": lambda node, now: [r for r in _once(now.get("", [])) if r not in node.earlier()],
    "enumerate": lambda node, now: list(enumerate(now.get("", []), len(node.earlier()))),
    "persist": lambda node, now: node.all(now, ""),
    "persist_mut": _kept,
    "persist_mut_keyed": _kept,
    "multiset_delta": _delta,
    "defer_signal": _released,
    "rounds": _rounds,
}
