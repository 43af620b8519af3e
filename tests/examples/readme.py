"""Commands and their output, as a README shows them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(readme: Path) -> Iterator[str]:
    """The blocks of a README that begin with a command: `$ ` before each, a `\\` where it goes on."""
    yield from _BLOCK.findall(readme.read_text(encoding="utf-8"))


def commands(block: str) -> list[str]:
    """The commands of a block."""
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)


def run(block: str, folders: Mapping[str, Path]) -> str:
    """The block as its commands fill it now, with each name of a folder standing for that folder."""
    filled: list[str] = []
    for command in commands(block):
        line = command
        for name, folder in folders.items():
            line = line.replace(name, str(folder))
        script = (
            f'python() {{ "{sys.executable}" "$@"; }}\npenstock() {{ python -m penstock.cli "$@"; }}\n{line}'
        )
        done = subprocess.run(
            ["sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, env=_environment()
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        output = done.stdout
        for name, folder in folders.items():
            output = output.replace(str(folder), name)
        filled.append(f"$ {command}\n{output}")
    return "".join(filled)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "COLUMNS": "100"}
