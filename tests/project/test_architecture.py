"""docs/explanation/architecture.md names files that exist, and every package."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "headrace"
TEXT = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")


def test_every_path_is_there() -> None:
    named = set(re.findall(r"`([\w/]+(?:\.py|\.proto|/))`", TEXT))
    inside = {p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*/")}
    # The table names packages by their last part, such as `steps/` of `engine/`.
    packages = {f"{path}/" for path in inside} | {f"{path.rpartition('/')[2]}/" for path in inside}
    assert [
        path
        for path in sorted(named)
        if path not in packages and not (PACKAGE / path).exists() and not (ROOT / path).exists()
    ] == []


def test_every_package_and_module_at_the_top_is_in_the_table() -> None:
    table = TEXT.partition("## Packages")[2].partition("\n## ")[0]
    there = {f"{p.name}/" for p in PACKAGE.iterdir() if (p / "__init__.py").exists()}
    there |= {p.name for p in PACKAGE.glob("*.py") if p.name != "__init__.py"}
    assert there <= set(re.findall(r"`([\w.]+/?)`", table))
