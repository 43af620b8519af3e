"""Notebooks executed by a kernel of their own, and what their cells show."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


def execute(notebook: Any, folder: Path, *, timeout: int = 120) -> Any:
    """Run all cells of a notebook in `folder`; raise for a cell that fails and is not tagged for it."""
    spec = folder / "kernels" / "headrace"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps(
            {
                "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                "display_name": "Headrace",
                "language": "python",
                "env": {
                    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                    "IPYTHONDIR": str(folder / "ipython"),
                    "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
                },
            }
        )
    )
    manager = AsyncKernelManager(
        kernel_name="headrace", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(spec.parent)])
    )
    client = NotebookClient(notebook, km=manager, timeout=timeout, resources={"metadata": {"path": folder}})
    client.owns_km = True  # it ends the kernel
    return client.execute()


def run_cells(folder: Path, *cells: str, failing: Sequence[int] = ()) -> list[Any]:
    """Run these cells in order and return them with their outputs. failing: positions of those that fail."""
    made = [nbformat.v4.new_code_cell(cell) for cell in cells]
    for at in failing:
        made[at].metadata["tags"] = ["raises-exception"]
    return list(execute(nbformat.v4.new_notebook(cells=made), folder).cells)


def text_of(cell: Any) -> str:
    """Return what a cell printed, its value as text, and its error."""
    parts: list[str] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif output.output_type == "error":
            parts.append(f"{output.ename}: {output.evalue}")
        else:
            parts.append(output.data.get("text/plain", ""))
    return "".join(parts)


def html_of(cell: Any) -> str:
    """Return the HTML of a cell's outputs."""
    return "".join(output.data.get("text/html", "") for output in cell.outputs if "data" in output)


def without_line_numbers(error: BaseException) -> str:
    """Return an error's text for a golden file: the lines of a test move."""
    return re.sub(r"(\.py):\d+ +", r"\1   ", str(error))
