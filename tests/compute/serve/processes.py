"""A controller and replicas as processes, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import headrace as hr
from headrace import col

ROOT = Path(__file__).resolve().parents[3]


class Sale(NamedTuple):
    shop: str
    price: int


def totals() -> hr.Flow:
    """What each shop has sold; a total of totals, so that rows are taken back."""
    flow = hr.Flow("totals")
    sales = flow.table("sales", Sale)
    flow.sink("totals", sales.group_by(col.shop).agg(total=hr.sum(col.price), sales=hr.count()))
    return flow


class Cluster:
    """Processes by name, with the addresses where they listen. All of it in one folder."""

    def __init__(self, folder: Path, *credentials: str) -> None:
        self.folder = folder
        self.credentials = credentials
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}

    def launch(self, name: str, *arguments: str) -> None:
        """Start a process, where it has listened before if it has; `ready` waits until it listens."""
        listen = self.addresses.get(name, "127.0.0.1:0")
        command = [sys.executable, "-m", "headrace.cli", *arguments, "--listen", listen, *self.credentials]
        with (self.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HEADRACE_TOKEN": ""},
            )
        self.processes[name] = process

    def ready(self, name: str) -> None:
        process = self.processes[name]
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said, f"{name} did not start:\n{(self.folder / f'{name}.log').read_text()}"
        self.addresses[name] = said[-1]

    def replicas(self, *names: str) -> None:
        """Start some, all at once."""
        for name in names:
            self.launch(name, "replica", "--name", name, "--state", str(self.folder / name))
        for name in names:
            self.ready(name)

    def controller(self, name: str = "controller", *options: str) -> None:
        replicas = [f"--replica={r}={a}" for r, a in self.addresses.items() if r.startswith("r")]
        self.launch(name, "controller", "--state", str(self.folder / "state"), *replicas, *options)
        self.ready(name)

    def kill(self, name: str) -> None:
        """As a power cut ends it."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.communicate()


@contextmanager
def cluster(folder: Path, *credentials: str) -> Iterator[Cluster]:
    made = Cluster(folder, *credentials)
    try:
        yield made
    finally:
        made.end()
