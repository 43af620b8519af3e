"""The site builds without a warning, and its API page has what users call."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from tests.docs.pages import ROOT

# Types and namespaces, which other pages describe.
NOT_CALLED = {
    "Append",
    "Bounded",
    "DecimalType",
    "Int32",
    "NoOrder",
    "Ordered",
    "PenstockError",
    "Table",
    "Unbounded",
}
NOT_CALLED |= {"col", "left", "right", "functions"}
IN_FUNCTIONS_PAGE = {"aggregate", "exists", "filter", "forall", "transform", "zip_with"}


@pytest.mark.verify
def test_the_site_builds_and_its_api_page_is_complete(tmp_path: Path) -> None:
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[-3000:]
    page = (tmp_path / "site/reference/api/index.html").read_text("utf-8")
    shown = set(re.findall(r'id="penstock\.([\w.]+)"', page))
    methods = {
        f"{owner.__name__}.{name}"
        for owner in (ps.Stream, ps.Flow, ps.Signal, ps.Engine)
        for name in _public(owner)
    }
    assert methods <= shown
    assert set(ps.__all__) - NOT_CALLED - IN_FUNCTIONS_PAGE <= shown
    assert "<blockquote>" not in page, "a doctest is shown as a quotation"


def _public(owner: type) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_") and getattr(owner, name).__doc__]
