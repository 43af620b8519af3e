"""A PostgreSQL server of our own for tests, on loopback, in a folder that goes with it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

PASSWORD = "s3cret:/@ word"


def binaries() -> Path | None:
    """The folder of the server's programs; None where there is none."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return debian[-1].parent if debian else None


@dataclass(frozen=True)
class Postgres:
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://tester:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/postgres"

    def query(self, sql: str) -> list[list[Any]]:
        from pg8000.native import Connection

        connection = Connection(
            "tester", host="127.0.0.1", port=self.port, database="postgres", password=PASSWORD
        )
        try:
            return connection.execute_simple(sql).rows or []
        finally:
            connection.close()


@contextmanager
def postgres_server(programs: Path) -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    # The server refuses to be run by root.
    other: dict[str, Any] = {"user": "nobody", "extra_groups": []} if os.getuid() == 0 else {}
    if other:
        shutil.chown(folder, "nobody")
    data, password = folder / "data", folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o644)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "tester", "--pwfile", password, "--no-sync",
             "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"],
            check=True, capture_output=True, cwd=folder, **other,
        )  # fmt: skip
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-k", folder, "-p", str(port),
             "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=20"],
            stderr=subprocess.PIPE, text=True, cwd=folder, **other,
        )  # fmt: skip
        try:
            assert server.stderr is not None
            lines: list[str] = []
            while "ready to accept connections" not in (line := server.stderr.readline()):
                lines.append(line)
                assert line, "".join(lines)
            yield Postgres(port)
        finally:
            server.send_signal(signal.SIGINT)  # it does not wait for clients
            server.communicate()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
