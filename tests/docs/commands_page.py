"""The page docs/reference/commands.md: the help of every command."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.docs.pages import GENERATED


def page() -> str:
    """The page as Markdown, from Typer's own documentation of the commands."""
    ran = subprocess.run(
        [sys.executable, "-m", "typer", "headrace.cli.main", "utils", "docs", "--name", "headrace"],
        env=os.environ | {"TYPER_USE_RICH": "0", "PYTHONWARNINGS": ""},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    text = ran.stdout.replace("# `headrace`", f"# Commands\n\n{GENERATED}", 1)
    # Typer's lists cut the summaries of the commands; the sections that follow have them whole.
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)*\n?", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"
