"""A checkpoint, its sinks and its input, through all the runs that are killed."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.spark.killing import shop
from tests.spark.killing.processes import Driver

LOCAL = "local[2]"
WAYS = ("one task", "stages", "auto")


@dataclass(slots=True)
class Story:
    """Input that arrives, the driver that runs, and the ticks that it and those before it told of.

    rows: orders in a file.
    """

    folder: Path
    choice: random.Random
    rows: int = 40
    supplier: shop.Supplier = field(init=False)
    ticks: list[int] = field(default_factory=list[int])
    starts: int = 0
    _running: Driver | None = None
    _master: str = ""

    def __post_init__(self) -> None:
        self.supplier = shop.Supplier(self.folder, random.Random(self.choice.random()), self.rows)
        self.supplier.write()

    def supply(self, count: int = 1) -> None:
        """Let some more input arrive."""
        for _ in range(count):
            self.supplier.write()

    def driver(self, master: str | None = None) -> Driver:
        """The driver that runs, if it runs on that master (None: on any); else a new one, that follows."""
        if self._running is not None and master not in (None, self._master):
            self.stop()
        if self._running is None:
            self._running = self._start(master or LOCAL, follow=True)
            self._running.until("jvm")
        return self._running

    def run_to_the_end(self, **options: Any) -> None:
        """Run over all the input there is. Raises `Ended` where that fails."""
        self.stop()
        with self._start(LOCAL, **options) as driver:
            while driver.line() != "done":
                self._note(driver.said[-1])

    def ticked(self) -> int:
        """Wait for the next tick of the driver that runs. Raises `Ended`."""
        assert self._running is not None
        self._note(line := self._running.until("tick"))
        return int(line.split()[1])

    def catch_up(self) -> None:
        """Read of the ticks that were over before now. Raises `Ended`."""
        assert self._running is not None
        for line in self._running.lines_so_far():
            self._note(line)

    def stop(self) -> None:
        """End the driver that runs as a user would, after the tick at work."""
        if self._running is not None:
            self._running.process.send_signal(signal.SIGTERM)
            while self._running.line() != "done":
                self._note(self._running.said[-1])
        self.forget()

    def forget(self) -> None:
        """The driver that ran has ended, in whatever way."""
        if self._running is not None:
            self._running.close()
            self._running = None

    @property
    def told_again(self) -> int:
        """How many ticks were told of more than once."""
        return len(self.ticks) - len(set(self.ticks))

    def _start(self, master: str, **options: Any) -> Driver:
        self.starts += 1
        self._master = master
        return Driver(self.folder, master=master, way=self.choice.choice(WAYS), **options)

    def _note(self, line: str) -> None:
        if line.startswith("tick "):
            self.ticks.append(int(line.split()[1]))

    def __enter__(self) -> Story:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()
