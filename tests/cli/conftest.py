"""A folder with a flow and its input, and the command as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120", "NO_COLOR": "1"}

FLOWS = """
from typing import NamedTuple

import headrace as hr
from headrace import col


class Sale(NamedTuple):
    shop: str
    price: int


def totals():
    flow = hr.Flow("totals")
    sales = flow.source("sales", Sale)
    flow.sink("totals", sales.group_by(col.shop).agg(total=hr.sum(col.price)))
    return flow


def stock():
    flow = hr.Flow("stock")
    flow.sink("stock", flow.table("sales", Sale))
    return flow


def inverse():
    flow = hr.Flow("inverse")
    flow.sink("inverse", flow.source("sales", Sale).select(shop=col.shop, inverse=1 / col.price))
    return flow


def failing():
    return {}["nothing"]


def minutes():
    flow = hr.Flow("minutes")
    sales = flow.source("sales", Sale).watermark(col.price, lateness=0)
    flow.sink("minutes", sales.group_by(window=hr.tumbling(col.price, 2)).agg(sales=hr.count()))
    return flow


flow = totals()
number = 7
"""

SALES = '{"shop": "a", "price": 1}\n{"shop": "b", "price": 2}\n{"shop": "a", "price": 3}\n'

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(SALES)
    return tmp_path


@pytest.fixture
def headrace(folder: Path) -> Run:
    """`headrace(*arguments)` in the folder."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "headrace.cli", *arguments],
            cwd=folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the folder, of which no module stays imported afterwards."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = dict(sys.modules)
    yield
    # Not those of packages: whoever holds one already would see a second copy of it.
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
    sys.modules.update(modules)
