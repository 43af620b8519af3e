"""Every block of code in the documentation runs and prints what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.extras import extras_of, missing_packages
from tests.docs.pages import DOCS, ROOT, Block, Drawing, pages, read_page
from tests.golden import assert_golden

PICTURES = DOCS / "pictures"
MAX_NOT_RUN = 0.05


def _runs(item: Block | Drawing) -> bool:
    return isinstance(item, Drawing) or item.runs


def _param(page: Path) -> object:
    slow = "<!-- verify -->" in page.read_text("utf-8")
    return pytest.param(page, id=page.relative_to(ROOT).as_posix(), marks=pytest.mark.verify if slow else ())


@pytest.mark.parametrize("page", [_param(p) for p in pages() if any(map(_runs, read_page(p)))])
def test_a_page_shows_what_comes_out(page: Path, tmp_path: Path) -> None:
    work, drawn = tmp_path / "work", tmp_path / "drawn"
    work.mkdir()
    drawn.mkdir()
    paths = [str(ROOT / "src"), str(ROOT)]
    extras = extras_of(page)
    if extras is not None:
        paths.append(str(Path(__file__).parent / "only_extras"))
    environment = os.environ | {
        "HIDDEN_PACKAGES": "" if extras is None else " ".join(missing_packages(extras)),
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "COLUMNS": "100",
        "TERM": "dumb",
        "NO_COLOR": "1",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tests.docs.run_page", str(page), str(drawn)],
        cwd=work, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-6000:]
    for picture in sorted(drawn.iterdir()):
        assert_golden(PICTURES / picture.name, picture.read_text("utf-8"))


def test_nearly_all_blocks_run_and_the_others_say_why() -> None:
    blocks = [(p.name, b) for p in pages() for b in read_page(p) if isinstance(b, Block)]
    unexplained = [f"{name}:{b.line}" for name, b in blocks if not b.runs and b.reason is None]
    assert unexplained == []
    assert sum(not b.runs for _, b in blocks) <= MAX_NOT_RUN * len(blocks)


def test_every_picture_is_drawn_by_a_page() -> None:
    drawn = {d.file for p in pages() for d in read_page(p) if isinstance(d, Drawing)}
    assert {p.name for p in PICTURES.glob("*.svg")} == drawn
