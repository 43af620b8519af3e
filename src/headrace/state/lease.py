"""Lease on a checkpoint, with fencing numbers: at most one driver at a time.

A file lock keeps a second live driver out and is released by the system when
its holder dies. The fencing number, one higher for every holder, is taken by
creating a file that did not exist; a holder that is no longer the highest
number (on a file system whose locks do not hold) may not commit.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path

from headrace.errors import CheckpointInUse


class Lease:
    """A held lease. `number` is the fencing number."""

    def __init__(self, folder: Path, handle: int, number: int) -> None:
        self._folder = folder
        self._handle: int | None = handle
        self.number = number

    @classmethod
    def take(cls, folder: Path) -> Lease:
        """Acquire the lease of the checkpoint in `folder`. Raises `CheckpointInUse`."""
        holders = folder / "lease"
        holders.mkdir(parents=True, exist_ok=True)
        handle = os.open(holders / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 1000).decode(errors="replace")
            os.close(handle)
            raise _in_use(folder, holder) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(_myself()).encode(), 0)
        return cls(folder, handle, _next_number(holders))

    def check(self) -> None:
        """Raise `CheckpointInUse` if a later holder exists."""
        latest = max(_numbers(self._folder / "lease"), default=0)
        if self._handle is None or latest != self.number:
            raise CheckpointInUse(
                f"the checkpoint {self._folder} was taken over by another process",
                why=f"this process holds number {self.number}, the latest is {latest}.",
                fix="let the other one run, or stop it and start again",
                checkpoint=str(self._folder),
            )

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _numbers(holders: Path) -> list[int]:
    return [int(p.name) for p in holders.iterdir() if p.name.isdigit()]


def _next_number(holders: Path) -> int:
    while True:
        before = _numbers(holders)
        number = max(before, default=0) + 1
        try:
            os.close(os.open(holders / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            continue
        for old in before:
            (holders / str(old)).unlink(missing_ok=True)
        return number


def _myself() -> dict[str, object]:
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return {"host": socket.gethostname(), "process": os.getpid(), "since": since}


def _in_use(folder: Path, holder: str) -> CheckpointInUse:
    try:
        facts = json.loads(holder)
        who = f"process {facts['process']} on {facts['host']} has held it since {facts['since']}."
    except (ValueError, KeyError, TypeError):
        who = "another process holds it."
    return CheckpointInUse(
        f"the checkpoint {folder} is in use",
        why=who,
        fix="wait until it ends, or give this run a checkpoint of its own",
        checkpoint=str(folder),
    )
