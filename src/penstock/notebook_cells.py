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
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        count: int = shell.execution_count
        return count
    marimo: Any = sys.modules.get("marimo._runtime.context.types")
    context = None if marimo is None else marimo.safe_get_context()
    return None if context is None else context.execution_context


def in_notebook() -> bool:
    """Return whether the program runs in a Jupyter kernel or in marimo, so that HTML and widgets show."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        return hasattr(shell, "kernel")
    return cell_execution() is not None
