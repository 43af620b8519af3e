"""Texts that are tested as a whole: the file beside the test is what must come out."""

from __future__ import annotations

import os
from pathlib import Path

# Whole messages of errors that `errors/cases` cannot raise.
MESSAGES = Path(__file__).parent / "errors" / "messages"


def assert_golden(path: Path, text: str) -> None:
    """Compare with the file, or write it: HEADRACE_WRITE_GOLDEN=1 pytest ..., then read the diff."""
    if os.environ.get("HEADRACE_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is missing; HEADRACE_WRITE_GOLDEN=1 writes it"
    assert text == path.read_text(encoding="utf-8")
