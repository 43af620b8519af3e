"""A controller and its replicas, each a process, that can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from benches.measure.processes import resident


class Cluster:
    """Processes by name; each listens where it did before when it is started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._commands: dict[str, list[str]] = {}
        self.addresses: dict[str, str] = {}

    def _start(self, name: str, command: list[str], address: str) -> str:
        full = [sys.executable, "-m", *command, "--listen", address]
        process = subprocess.Popen(full, stdout=subprocess.PIPE, text=True, env=os.environ)
        assert process.stdout is not None
        said = process.stdout.readline().split()
        if not said:
            raise SystemExit(f"{name} did not start")
        self._running[name], self._commands[name], self.addresses[name] = process, command, said[-1]
        return said[-1]

    def echo(self) -> str:
        return self._start("echo", ["benches.serving.echo"], "127.0.0.1:0")

    def replica(self, name: str) -> str:
        command = ["headrace.cli", "replica", "--name", name, "--state", str(self._folder / name)]
        return self._start(name, command, "127.0.0.1:0")

    def controller(self, *options: str) -> str:
        command = ["headrace.cli", "controller", "--state", str(self._folder / "controller"), *options]
        return self._start("controller", command, "127.0.0.1:0")

    def kill(self, name: str) -> None:
        """As `kill -9` does."""
        process = self._running[name]
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal, if the process runs."""
        if self._running[name].poll() is None:
            self._running[name].send_signal(number)

    def again(self, name: str) -> None:
        self._start(name, self._commands[name], self.addresses[name])

    def process(self, name: str) -> int:
        """The number of a process."""
        return self._running[name].pid

    def megabytes(self, name: str) -> float:
        return resident(self._running[name].pid) / 1e6

    def end(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        for process in self._running.values():
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
