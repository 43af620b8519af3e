"""Errors that name the modules responsible for an unfinished pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.pull.edge import Edge, EdgeModule
from headrace.pull.errors import EndNotConfirmed, NeverAnswered, NotFinished

_OUTSIDE = (
    "Requests wait there, and no timer, task or thread of the pipeline is left to answer them.",
    "start() it and bring the values before result(), or await it beside the task that does",
)


def unconfirmed_stop_error(stopping: Mapping[Edge | EdgeModule, EdgeModule]) -> EndNotConfirmed:
    """Build the error for unconfirmed stops, naming the modules that wait for none of the others.

    stopping: stopped modules by edge, and closing sinks.

    NamedModule are those that wait for none of the others.
    """
    culprits = [module for module in stopping.values() if not any(i in stopping for i in module.inputs)]
    return EndNotConfirmed(
        f"{_names(culprits)} was stopped but has not confirmed",
        where=[module.location for module in culprits],
        why="A module confirms an abort once it and everything upstream of it have closed.",
        fix="answer every abort and error in the module, or allow more time: confirm_within=SECONDS",
        modules=tuple(module.name for module in culprits),
    )


def unfinished_run_error(outstanding: int) -> NotFinished:
    """Build the error for a result read early. outstanding: pending timers, tasks and threads."""
    return NotFinished(
        "the pipeline is still running",
        why=f"Pending timers, tasks and threads: {outstanding}.",
        fix="call wait(), or await the run, before result()",
        outstanding=outstanding,
    )


def stalled_pipeline_error(edges: Iterable[Edge]) -> NeverAnswered:
    """Build the error for a pipeline that nothing can finish. edges: those that have not ended.

    Names outputs that nobody reads although others wait for them; otherwise modules that were asked and ask
    nobody; otherwise modules that nobody asks.
    """
    there = dict.fromkeys(edges)
    unread = [edge for edge in there if edge.lower is None]
    if unread:
        return NeverAnswered(
            f"the pipeline is not finished, and nobody reads {', '.join(map(_output, unread))}",
            where=[edge.upper.location for edge in unread],
            why="Readers of one module wait for each other.",
            fix="read all of them in the same run: together(pipeline, pipeline)",
            modules=tuple(edge.upper.name for edge in unread),
        )
    waiting = [e for e in there if e.asked and not any(i.asked for i in e.upper.inputs)]
    idle = [e for e in there if not any(i in there for i in e.upper.inputs)]
    culprits = [edge.upper for edge in waiting or idle]
    why, fix = next((module.advice for module in culprits if module.advice is not None), _OUTSIDE)
    names = _names(culprits) or "the sink"
    return NeverAnswered(
        f"the pipeline is not finished, and nothing will come from {names} by itself",
        where=[module.location for module in culprits],
        why=why,
        fix=fix,
        modules=tuple(module.name for module in culprits),
    )


def _names(modules: Iterable[EdgeModule]) -> str:
    return ", ".join(dict.fromkeys(repr(module.name) for module in modules))


def _output(edge: Edge) -> str:
    outputs = edge.upper.outputs
    which = f"branch {outputs.index(edge) + 1} of " if len(outputs) > 1 else ""
    return f"{which}{edge.upper.name!r}"
