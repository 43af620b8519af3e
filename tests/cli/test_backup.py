"""`headrace backup`: what is printed, and the whole messages of mistakes."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.compute.collections.sqlite import SqliteCollections
from headrace.compute.controller.durable_catalog import DurableCatalog
from tests.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["backup", *arguments], env={"COLUMNS": "120", "NO_COLOR": "1"})
    assert done.exit_code == code, done.output
    return re.sub(r"[0-9,]+ bytes", "N bytes", done.output)


def test_a_controller_is_saved_and_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("state").mkdir()
    state, rows = DurableCatalog.open("state/controller.db"), SqliteCollections("state/collections.db")
    state.start()
    said = [
        run("save", "state", "backup"),
        run("save", "state", "backup", code=2),
        run("restore", "backup", "state", code=2),
        run("restore", "backup", "state", "--replace", code=1),
        run("restore", "nothing", "state", code=2),
        run("restore", "backup", "elsewhere"),
    ]
    state.close()
    rows.close()
    said.append(run("restore", "backup", "state", "--replace"))
    Path("backup/controller.db").write_bytes(b"nothing of use")
    said.append(run("restore", "backup", "state", "--replace", code=1))
    Path("state/collections.db").unlink()
    said.append(run("save", "state", "half"))
    assert_golden(GOLDEN / "backup.txt", "---\n".join(said))
    assert sqlite3.connect("state/controller.db").execute("PRAGMA quick_check").fetchone() == ("ok",)
