"""From an exception in generated code to the user's line, the operator and the row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from penstock.errors import NoFixpoint, PenstockError, Step, UserFunctionFailed

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from penstock.engine.program import Program
    from penstock.graph.node import Node


def explained(error: Exception, program: Program) -> Exception:
    """The same failure as a `PenstockError` with operator, place and row; other errors as they are.

    The line of generated code that was running tells the operator and the row.
    """
    at = _generated_frame(error.__traceback__, program.file)
    if at is None:
        return error
    frame, line = at
    purpose = program.purposes[line - 1]
    if purpose.node is None:
        return error
    node = program.graph.nodes[purpose.node]
    row = _row(frame, purpose.row)
    where = [Step(node.location, f"operator {node.name!r}")]
    if isinstance(error, NoFixpoint):
        return _with_edges(error, program)
    if isinstance(error, PenstockError):
        why = error.why or _row_text(row)
        return type(error)(
            error.what, where=(*error.where, *where), why=why, fix=error.fix,
            **{**error.facts, "operator": node.name, "row": row},
        )  # fmt: skip
    if not _calls_user_code(node):
        return error
    return UserFunctionFailed(
        f"{type(error).__name__}: {error}",
        where=where,
        why=f"a function of {node.name!r} raised. {_row_text(row)}".strip(),
        fix="the cause is attached; a filter before the operator can keep such rows out",
        operator=node.name,
        row=row,
    )


def raise_explained(told: Exception, error: Exception) -> NoReturn:
    """Raise `told`, with `error` as its cause unless they are one: causes must not lead back to it."""
    if told is error:
        raise error
    raise told from error


def _with_edges(error: NoFixpoint, program: Program) -> NoFixpoint:
    """With the edges of the loop that still carry new rows: where each feedback stands and what closes it."""
    nodes = program.graph.nodes
    going: list[str] = []
    where: list[Step] = []
    closing: dict[int, int] = error.facts["closing"]
    for at, news in closing.items():
        if news:
            (source,) = nodes[at].inputs
            going.append(f"{nodes[source].name} -> {nodes[at].name}")
            where.append(
                Step(nodes[at].location, f"{nodes[at].name!r} gets {news} new rows in the last round")
            )
            where.append(Step(nodes[source].location, f"from {nodes[source].name!r}, which closes it"))
    facts = {**error.facts, "operator": nodes[next(iter(closing))].name, "edges": tuple(going)}
    return NoFixpoint(error.what, where=where, why=error.why, fix=error.fix, **facts)


def _generated_frame(traceback: TracebackType | None, file: str) -> tuple[FrameType, int] | None:
    found: tuple[FrameType, int] | None = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == file:
            found = (traceback.tb_frame, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _calls_user_code(node: Node) -> bool:
    return next(node.operator.callables(), None) is not None


def _row(frame: FrameType, columns: tuple[str, ...]) -> tuple[Any, ...] | None:
    """The row that a line worked on: its columns are sources over the frame's variables."""
    try:
        return tuple(eval(column, {}, frame.f_locals) for column in columns) or None
    except NameError:
        return None  # the line failed before the row was there


def _row_text(row: tuple[Any, ...] | None) -> str:
    return "" if row is None else f"The row was {row!r:.300}."
