"""The processes of a run, as the system knows them: driver, JVM, executors, Python workers."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

ROOT = Path(__file__).parents[3]
PATIENCE = 600.0
"""Seconds after which a driver that says nothing is given up."""


class Ended(Exception):
    """The driver has ended with a code; it said `error` last."""

    def __init__(self, code: int, error: str) -> None:
        super().__init__(f"code {code}: {error}")
        self.code = code
        self.error = error


class Driver:
    """A driver in a process of its own (`tests.spark.killing.driver`), and the lines that it says."""

    def __init__(self, folder: Path, **options: Any) -> None:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._errors = TemporaryFile("w+")  # noqa: SIM115  closed by `close`
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.killing.driver", str(folder), json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.jvm = 0
        self.said: list[str] = []

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())
        self._lines.put("")

    def line(self) -> str:
        """What it says next. Raises `Ended`."""
        line = self._lines.get(timeout=PATIENCE)
        if not line:
            raise self._ended()
        if line.startswith("jvm "):
            self.jvm = int(line.split()[1])
        self.said.append(line)
        return line

    def lines_so_far(self) -> list[str]:
        """What it has said and nobody has read. Raises `Ended`."""
        # What it said last is on its way through the pipe.
        time.sleep(0.2)
        return [self.line() for _ in range(self._lines.qsize())]

    def until(self, beginning: str) -> str:
        """Read on to a line that begins so. Raises `Ended`."""
        while not (line := self.line()).startswith(beginning):
            pass
        return line

    def _ended(self) -> Ended:
        code = self.process.wait(PATIENCE)
        self._errors.seek(0)
        return Ended(code, self._errors.read())

    def until_stopped(self) -> None:
        """Wait until it has been stopped, as by SIGSTOP."""
        assert os.waitid(os.P_PID, self.process.pid, os.WSTOPPED) is not None

    def workers(self) -> list[int]:
        """Python workers that run tasks: children of PySpark's daemon."""
        daemons = {process for process in below(self.jvm) if "pyspark.daemon" in command(process)}
        return [process for process in below(self.jvm) if parent(process) in daemons]

    def executors(self) -> list[int]:
        return [p for p in below(self.jvm) if "CoarseGrainedExecutorBackend" in command(p)]

    def close(self) -> None:
        """End it if it lives, and wait for all that it started."""
        self.process.send_signal(signal.SIGCONT)
        everything = [*below(self.process.pid), *([self.jvm] if self.jvm else [])]
        kill(self.process.pid)
        self.process.wait(PATIENCE)
        for process in everything:
            wait_for_end(process)
        self._reader.join()
        for stream in (self.process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kill(process: int) -> None:
    """`kill -9`, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def wait_for_end(process: int) -> None:
    """Until a process that is no child of ours is gone."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], PATIENCE)[0], f"{command(process)[:200]} outlives its driver"
    finally:
        os.close(handle)


def below(process: int) -> list[int]:
    """All processes that a process started, and those that they started."""
    children: dict[int, list[int]] = {}
    for number in _numbers():
        children.setdefault(parent(number), []).append(number)
    found: list[int] = []
    waiting = [process]
    while waiting:
        waiting.extend(under := children.get(waiting.pop(), []))
        found.extend(under)
    return found


def parent(process: int) -> int:
    """-1 for one that is gone."""
    try:
        # The name, in brackets, may hold blanks and brackets itself.
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1


def command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _numbers() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())
