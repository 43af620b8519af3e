"""The site builds without a warning, and its API page has what users call."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr
from tests.docs.pages import ROOT

# Functions without a `def` of their own: the page of functions has them.
IN_FUNCTIONS_PAGE = {"aggregate", "exists", "filter", "forall", "functions", "transform", "zip_with"}
PUBLIC = [
    "headrace",
    "headrace.compute",
    "headrace.compute.plans",
    "headrace.io",
    "headrace.pipelines",
    "headrace.pull",
    "headrace.spark",
    "headrace.testing",
    "headrace.testing.compute",
]


@pytest.mark.verify
def test_the_site_builds_and_its_api_page_is_complete(tmp_path: Path) -> None:
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[-3000:]
    page = (tmp_path / "site/reference/api/index.html").read_text("utf-8")
    ids = set(re.findall(r'id="headrace\.([\w.]+)"', page))
    # A function may share its module's name: `pull.defer.defer` is exported as `pull.defer`.
    shown = ids | {re.sub(r"\b(\w+)\.\1$", r"\1", each) for each in ids}
    methods = {
        f"{owner.__name__}.{name}"
        for owner in (hr.Stream, hr.Flow, hr.Signal, hr.Engine)
        for name in _public(owner)
    }
    assert methods <= shown
    for package in PUBLIC:
        assert _exported(package) - IN_FUNCTIONS_PAGE - shown == set()
    assert "<blockquote>" not in page, "a doctest is shown as a quotation"


def _public(owner: type) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_") and getattr(owner, name).__doc__]


def _exported(package: str) -> set[str]:
    within = package.removeprefix("headrace").removeprefix(".")
    return {f"{within}.{name}".removeprefix(".") for name in importlib.import_module(package).__all__}
