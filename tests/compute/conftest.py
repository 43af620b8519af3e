"""Connections of SQLite are closed at the end of each test, as the end of a process would close them.

Tests kill controllers and leave them; from Python 3.13 on, a connection that is left to the collector warns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def connections_end_with_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def counted(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        opened.append(connection)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counted)
    yield
    for connection in opened:
        with suppress(sqlite3.Error):  # one of another thread
            connection.close()
