"""Opaque Python objects in plans: refused unless both sides allow them, then pickled by value."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, cast

from headrace.analysis.node_labels import label_in_sentence
from headrace.compute.errors import BadPlan, CallableRefused
from headrace.errors import Step
from headrace.graph.node import FlowGraph, Node

_SHOWN = 5


def refuse_callables(graph: FlowGraph, nodes: Sequence[tuple[Node, str]]) -> CallableRefused:
    """Create the error for operators that hold Python objects, naming the objects."""
    listed = [label_in_sentence(graph, node) for node, _ in nodes[:_SHOWN]] + ["..."] * (len(nodes) > _SHOWN)
    return CallableRefused(
        f"flow {graph.name!r} holds Python functions, which a plan does not carry: in {', '.join(listed)}",
        where=[Step(node.location, what) for node, what in nodes[:_SHOWN]],
        why="A plan is data that anybody may read; a function is code that would be run by the reader.",
        fix="use expressions: filter(hr.col.price > 10), select(double=hr.col.price * 2);\n"
        "or allow functions on both sides, allow_callables=True or --allow-callables",
        operators=tuple(node.name for node, _ in nodes),
    )


def pickle_callables(objects: Sequence[object]) -> bytes:
    """Pickle Python objects, by value if they are defined in the user's own modules.

    Raises `CallableRefused` if the pickler is not installed, or fails.
    """
    if not objects:
        return b""
    cloudpickle = _cloudpickle()
    from headrace.spark.ticks.by_value import by_value

    try:
        with by_value(cloudpickle):
            return cast("bytes", cloudpickle.dumps(list(objects), protocol=5))
    except (pickle.PicklingError, TypeError, ValueError, AttributeError) as error:
        raise CallableRefused(
            f"a function of the flow cannot travel: {error}",
            why="Something that it holds (a lock, an open file, a connection) lives in this process alone.",
            fix="let it make what it needs when it is called",
            operators=(),
        ) from None


def unpickle_callables(data: bytes) -> list[object]:
    """Unpickle a plan's objects. This runs the sender's code, so it requires that callables are allowed.

    Raises `BadPlan` for invalid bytes.
    """
    if not data:
        return []
    _cloudpickle()
    try:
        objects: Any = pickle.loads(data)
    except Exception as error:
        raise BadPlan(
            f"the functions of the plan cannot be loaded: {error}",
            why="They need the same Python, and the packages that they import.",
            fix="install the packages that they import in the environment of this process",
            part="functions",
        ) from None
    if not isinstance(objects, list):
        raise BadPlan("the functions of the plan are no list", part="functions")
    return cast("list[object]", objects)


def _cloudpickle() -> Any:
    try:
        from pyspark import cloudpickle
    except ImportError:
        pass
    else:
        return cloudpickle
    try:
        import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise CallableRefused(
            "functions cannot travel: there is nothing here that makes them portable",
            why="Functions of your own modules and lambdas are pickled by value, which plain pickle cannot.",
            fix="pip install cloudpickle, or headrace[spark], which brings it",
            operators=(),
        ) from None
    return cloudpickle
