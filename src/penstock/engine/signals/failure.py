"""From an exception in a function of signals to the user's line, the operator, its values and the tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, Step, UserFunctionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from penstock.engine.signals.module import Module
    from penstock.engine.source_code import Purpose
    from penstock.graph.node import Node


def explained(error: Exception, module: Module, nodes: Mapping[int, Node], tick: int) -> Exception:
    """The same failure with operator, place, values and tick; other errors as they are."""
    found = _generated_frame(error, module)
    if found is None:
        return error
    frame, purpose = found
    if purpose.node is None:
        return error
    node = nodes[purpose.node]
    values = _values(frame, purpose.row)
    where = [Step(node.location, f"operator {node.name!r}")]
    if isinstance(error, PenstockError):
        facts = {**error.facts, "operator": node.name, "tick": tick}
        return type(error)(error.what, where=(*error.where, *where), why=error.why, fix=error.fix, **facts)
    when = f"in tick {tick}" if tick >= 0 else "on the current values, when it was subscribed to"
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return UserFunctionFailed(
        said,
        where=where,
        why=f"{node.name!r} failed {when}. Its inputs were {', '.join(map(_short, values))}.",
        fix="the cause is attached; a filter before the operator can keep such values out",
        operator=node.name,
        row=values,
        tick=tick,
    )


def _generated_frame(error: Exception, module: Module) -> tuple[FrameType, Purpose] | None:
    """The innermost frame of generated code, and what its line is for."""
    found: tuple[FrameType, Purpose] | None = None
    traceback = error.__traceback__
    while traceback is not None:
        purposes = module.purposes(traceback.tb_frame.f_code.co_filename)
        if purposes is not None:
            found = (traceback.tb_frame, purposes[traceback.tb_lineno - 1])
        traceback = traceback.tb_next
    return found


def _values(frame: FrameType, sources: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(eval(source, frame.f_globals, frame.f_locals) for source in sources)


def _short(value: object) -> str:
    return f"{value!r:.100}"
