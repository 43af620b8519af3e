"""The page of a controller in a real browser: replicas, views, and rows that change."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.ui.conftest import ENVIRONMENT, HOSTILE, TOKEN

pytestmark = pytest.mark.verify
Ask = Callable[..., str]


def started(folder: Path, closing: ExitStack, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a server; return it with the address that it prints."""
    process = closing.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", *arguments],
            cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
    )  # fmt: skip
    closing.callback(process.terminate)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert " listening on " in line, line + process.communicate()[1]
    return process, line.split()[-1]


@pytest.fixture
def served(folder: Path) -> Iterator[tuple[str, Ask]]:
    """The URL of the page, and a function that runs a command against the controller."""
    with ExitStack() as closing:
        _, replica = started(folder, closing, "replica", "--listen", "127.0.0.1:0", "--state", "r1")
        controller, address = started(
            folder, closing, "controller", "--listen", "127.0.0.1:0", "--state", "s", "--replica",
            f"r1={replica}", "--ui",
        )  # fmt: skip
        assert controller.stderr is not None
        printed = controller.stderr.readline().removeprefix("open ").strip()
        url = printed.replace("$HEADRACE_UI_TOKEN", TOKEN)

        def ask(*arguments: str) -> str:
            done = subprocess.run(
                [sys.executable, "-m", "headrace.cli", *arguments, "--controller", address],
                cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield url, ask


def test_replicas_views_and_their_rows_are_shown(served: tuple[str, Ask], tab: Any) -> None:
    url, ask = served
    tab.goto(url)
    tab.get_by_role("cell", name="r1", exact=True).wait_for()
    assert tab.get_by_role("columnheader", name="Can take over").count() == 1
    assert tab.get_by_role("cell", name="not yet", exact=True).count() == 1
    tab.get_by_text("There is no view yet").wait_for()
    ask("view", "create", "flows.py:totals", "--key", "shop")
    ask("insert", "sales", "--row", '{"shop": "a", "price": 1}')
    tab.get_by_role("cell", name="ready", exact=True).wait_for()
    tab.get_by_role("tab", name="Rows").click()
    tab.locator("#view").select_option("totals")
    cell = tab.locator("#rows tbody td")
    cell.filter(has_text=re.compile("^a$")).wait_for()
    ask("insert", "sales", "--row", f'{{"shop": "{HOSTILE}", "price": 5}}')
    cell.filter(has_text=HOSTILE).wait_for()
    assert tab.locator("#rows img").count() == 0
    tab.get_by_role("button", name=re.compile("^Why is")).first.click()
    dialog = tab.get_by_role("dialog")
    dialog.get_by_text("produce it.").or_(dialog.get_by_text("produces it.")).wait_for()
    tab.keyboard.press("Escape")
    tab.get_by_role("tab", name="Flows").click()
    views = tab.get_by_role("group", name="Views and collections")
    views.get_by_text("totals", exact=True).wait_for()
    assert views.locator(".box").count() == 2
    tab.get_by_role("group", name="Flow of totals").get_by_text("aggregate").wait_for()
    tab.get_by_label("Explanation").get_by_text("shop").first.wait_for()
