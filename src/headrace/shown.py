"""Values that notebooks render, and cells of notebooks.

A cell that runs again, edited or not, defines its sinks and sources again and means to replace them. Twice
in one execution, as in a script, is a mistake. So what counts is the execution, and neither the file name
that a notebook gives to a cell's text nor the line in it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import TracebackType
from typing import Any


class Shown:
    """Base of classes that notebooks show as HTML."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # By name: one module above all layers renders the values of each.
        html: str = import_module("headrace.notebook").html_of(self)
        return html


class Text(Shown, str):
    """Multi-line text that a prompt or a notebook also shows plainly, without quotes and escapes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def values_of(row: Any) -> Sequence[Any]:
    """Return the column values of a user's row, in order. A scalar is a single column."""
    if is_dataclass(row) and not isinstance(row, type):
        return [getattr(row, each.name) for each in fields(row)]
    return row if isinstance(row, tuple) else (row,)  # pyright: ignore[reportUnknownVariableType]


def text_of(value: Any) -> str:
    """Format a value for a table."""
    return value if isinstance(value, str) else f"{value:,}" if type(value) is int else str(value)


_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_LIBRARIES = tuple(
    os.path.join(path, "") for name, path in sysconfig.get_paths().items() if name in ("stdlib", "purelib")
)
_EVERYTHING = "Verbose"
"""Mode of IPython's `%xmode` in which nothing is left out."""


def cell_execution() -> object | None:
    """Return an identifier of the current cell execution in IPython, Jupyter or marimo; None elsewhere."""
    shell = _ipython()
    if shell is not None:
        count: int = shell.execution_count
        return count
    marimo: Any = sys.modules.get("marimo._runtime.context.types")
    try:
        execution = marimo.safe_get_context().execution_context
    except AttributeError:  # no marimo, none of its cells, or a version in which this private API differs
        return None
    # Executions of a cell compare equal, so the object counts. It stays alive, and its id its own.
    return id(execution), execution


def cell_name(file: str) -> str | None:
    """Return the name of the IPython cell with this file name, such as "In[3]"; None if it is no cell."""
    shell = _ipython()
    kind, name = ("", "") if shell is None else shell.compile.format_code_name(file) or ("", "")
    return name if kind == "Cell" else None


def in_notebook() -> bool:
    """Return whether the program runs in a Jupyter kernel or in marimo, which show HTML and widgets."""
    shell = _ipython()
    if shell is not None:
        return hasattr(shell, "kernel")
    return cell_execution() is not None


def rendered_traceback(error: BaseException) -> list[str]:
    """Render an error for IPython with only the user's frames, and a hint on showing the others.

    An error that was its cause is shown if it has passed a frame of the user, too.
    """
    shell = _ipython()
    render = shell.InteractiveTB.structured_traceback
    if shell.InteractiveTB.mode == _EVERYTHING:
        return render(type(error), error, error.__traceback__)
    chain = list(_chain(error))
    before = [(each, each.__cause__, each.__suppress_context__, each.__traceback__) for each in chain]
    left_out = 0
    try:
        for at, each in enumerate(chain):
            shown, hidden = _without_ours(each.__traceback__)
            left_out += hidden
            if at and hidden and shown is None:
                chain[at - 1].__cause__ = None  # also hides the context
                break
            each.__traceback__ = shown
        lines: list[str] = render(type(error), error, error.__traceback__)
    finally:
        for each, cause, suppresses, trace in before:
            each.__cause__, each.__traceback__ = cause, trace
            each.__suppress_context__ = suppresses
    if not left_out:
        return lines
    how = f"{left_out} frames of Headrace are left out; %xmode {_EVERYTHING}, then %tb, shows them."
    return [*lines, f"\n{how}"]


def _chain(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _without_ours(trace: TracebackType | None) -> tuple[TracebackType | None, int]:
    """Copy a traceback without our frames and the library frames below them. Also returns their number."""
    kept: list[TracebackType] = []
    within, hidden = False, 0
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        within = within or file.startswith(_OURS)
        # Generated functions have names such as <flow>.
        if within and file.startswith((_OURS, "<", *_LIBRARIES)):
            hidden += 1
        else:
            kept.append(trace)
        trace = trace.tb_next
    copy: TracebackType | None = None
    for each in reversed(kept):
        copy = TracebackType(copy, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return copy, hidden


def _ipython() -> Any:
    """Return the IPython shell if the program runs in IPython, else None."""
    ipython: Any = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()
