"""Executions of notebook cells: whether a name is defined again on purpose.

A cell that runs again, edited or not, defines its sinks and sources again and means to replace them. Twice
in one execution, as in a script, is a mistake. So what counts is the execution, and neither the file name
that a notebook gives to a cell's text nor the line in it.
"""

from __future__ import annotations

import sys
from typing import Any


def cell_execution() -> object | None:
    """Return the identity of the cell execution under way in IPython, Jupyter or marimo; None elsewhere."""
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
    """Return the name of the cell that IPython runs under a file name, such as "In[3]"; None if none."""
    shell = _ipython()
    kind, name = ("", "") if shell is None else shell.compile.format_code_name(file) or ("", "")
    return name if kind == "Cell" else None


def in_notebook() -> bool:
    """Return whether the program runs in a Jupyter kernel or in marimo, so that HTML and widgets show."""
    shell = _ipython()
    if shell is not None:
        return hasattr(shell, "kernel")
    return cell_execution() is not None


def _ipython() -> Any:
    """Return the shell of IPython, if that is what runs the program."""
    ipython: Any = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()
