"""The programs of these pages print what stands below them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / "operators-streams.md"]
PROGRAMS = [
    pytest.param(program, output, id=f"{page.stem} {at}")
    for page in PAGES
    for at, (program, output) in enumerate(
        re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
    )
]


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_a_program_prints_what_stands_below_it(program: str, output: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == output


def test_no_program_is_without_its_output() -> None:
    programs = sum(page.read_text("utf-8").count("```python\n") for page in PAGES)
    assert programs == len(PROGRAMS)
