"""A folder with a flow and its input, a run of it with a page, and a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "0123456789abcdef-0123456789abcdef"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HEADRACE_UI_TOKEN": TOKEN, "NO_COLOR": "1"}

FLOW = """
from typing import NamedTuple

import headrace as hr
from headrace import col


class Sale(NamedTuple):
    shop: str
    price: int


def flow():
    flow = hr.Flow("sales")
    sales = flow.source("sales", Sale)
    flow.sink("totals", sales.group_by(col.shop).agg(total=hr.sum(col.price)))
    flow.sink("dear", sales.filter(col.price > 100))
    return flow


def totals():
    flow = hr.Flow("totals")
    flow.sink("totals", flow.source("sales", Sale).group_by(col.shop).agg(total=hr.sum(col.price)))
    return flow


def rising(late=None):
    flow = hr.Flow("rising")
    flow.sink("rising", flow.source("sales", Sale).watermark(col.price, lateness=0, late=late))
    return flow


def rising_and_late():
    return rising("too_late")
"""

HOSTILE = "<img src=x onerror=document.title='hacked'>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(FLOW)
    (tmp_path / "in").mkdir()
    put(tmp_path, 1, ("a", 1), ("b", 2), ("a", 3))
    return tmp_path


def put(folder: Path, number: int, *sales: tuple[str, int], bad: str = "") -> None:
    """Add a file of sales, which appears as a whole."""
    import json

    lines = [json.dumps({"shop": shop, "price": price}) for shop, price in sales] + [bad] * bool(bad)
    staged = folder / "in" / f".{number}.tmp"
    staged.write_text("".join(f"{line}\n" for line in lines))
    staged.rename(folder / "in" / f"{number:03}.json")


class Started:
    """A command that serves a page. url: as it was printed, with the token that the shell would put there."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", *arguments],
            cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        assert first.startswith("open http://127.0.0.1:"), first + self.process.stderr.read()
        assert TOKEN not in first
        self.url = first.split()[1].replace("$HEADRACE_UI_TOKEN", TOKEN)
        self.port = int(self.url.split(":")[2].split("/")[0])

    def end(self) -> None:
        """End the command as Ctrl-C would, if it still runs."""
        self.process.terminate()
        self._wait()

    def kill(self) -> None:
        self.process.kill()
        self._wait()

    def _wait(self) -> None:
        self.process.wait(30)
        assert self.process.stderr is not None
        self.process.stderr.close()


RUN = (
    "run", "flows.py:flow", "--source", "sales=json:in?dead_letter=bad&files_per_tick=1", "--follow",
    "--checkpoint", "state", "--no-progress", "--ui",
)  # fmt: skip


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Started]]:
    """`start(*arguments)` starts a command in the folder, which ends with the test."""
    started: list[Started] = []

    def begin(*arguments: str) -> Started:
        started.append(Started(folder, *arguments))
        return started[-1]

    yield begin
    for each in started:
        each.end()


@pytest.fixture(scope="module", name="chromium")
def _chromium() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """A new tab, in which no script may fail and no policy may be broken."""
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(30_000)
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "console",
        lambda message: said.append(message.text) if "Security Policy" in message.text else None,
    )
    yield page
    page.close()
    assert said == []
