"""The README's program prints what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_program_in_the_readme_prints_what_stands_below_it() -> None:
    text = README.read_text(encoding="utf-8")
    program, output = re.findall(r"```(?:python|text)\n(.*?)```", text, flags=re.DOTALL)[:2]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == output
