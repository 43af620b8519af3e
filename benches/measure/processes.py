"""What processes take: memory and processor time of this one and of all that it has started, from `/proc`."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36
_SAMPLED_EVERY_S = 0.05
_LINGER_S = 30.0
"""How long processes that a command leaves behind, such as its JVM, may take to end."""


def resident(process: int) -> int:
    """Bytes that a process has in memory; 0 when it is gone."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def peak(process: int) -> int:
    """Most bytes that a process has had in memory, since `forget_peak` if that was called."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def forget_peak(process: int) -> None:
    """Begin anew with the peak of a process."""
    Path(f"/proc/{process}/clear_refs").write_text("5")


def below(process: int) -> list[tuple[int, str]]:
    """The processes below one, with the names of their programs."""
    found: list[tuple[int, str]] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = list(map(int, task.read_text().split()))
        except OSError:
            continue
        for child in children:
            try:
                name = Path(f"/proc/{child}/comm").read_text().strip()
            except OSError:
                continue
            found += [(child, name), *below(child)]
    return found


def processor_seconds() -> float:
    """Processor time of this process and of those below it so far, of children that have ended too."""
    return sum(map(seconds_of, [os.getpid(), *(process for process, _ in below(os.getpid()))]))


def seconds_of(process: int, *, ended: bool = True) -> float:
    """Processor time of a process so far. ended: with that of its children that have ended."""
    try:
        # The name, in parentheses, may hold blanks; after it comes the state.
        numbers = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, numbers[11 : 15 if ended else 13])) / _TICKS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a command: CPU time of all its processes, and wall time until it ended."""

    cpu: float
    wall: float

    def __str__(self) -> str:
        return f"{self.cpu:,.2f} / {self.wall:,.2f}"


def run_command(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> Cost:
    """Run a command in a folder and return its cost; its output is added to a log.

    Its orphans become children of this process, which waits for them too. There may be no other children.
    Raises `CalledProcessError` with the end of the log.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before, start = _of_ended_children(), time.monotonic()
    with log.open("ab") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
    unwaited: dict[int, float] = {}
    while process.poll() is None:
        unwaited |= _of_unwaited()
        time.sleep(_SAMPLED_EVERY_S)
    wall = time.monotonic() - start
    for orphan in _wait_for_orphans():
        unwaited.pop(orphan, None)
    if process.returncode:
        end = log.read_text(errors="replace")[-3_000:]
        raise subprocess.CalledProcessError(process.returncode, list(command), end)
    return Cost(_of_ended_children() - before + sum(unwaited.values()), wall)


def _of_ended_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _of_unwaited() -> dict[int, float]:
    """Processor time so far of processes below this one whose parent ignores their end.

    The kernel adds it to no parent's. Spark's workers are such, below their daemon.
    """
    found: dict[int, float] = {}
    for parent, _ in below(os.getpid()):
        try:
            ignored = Path(f"/proc/{parent}/status").read_text().partition("SigIgn:")[2].split()[0]
        except (OSError, IndexError):
            continue
        if int(ignored, 16) >> (signal.SIGCHLD - 1) & 1:
            found |= {process: seconds_of(process) for process, _ in below(parent)}
    return found


def _wait_for_orphans() -> list[int]:
    """Wait until no child is left; return those that there were. Kills them if they don't end."""
    ended: list[int] = []
    deadline = time.monotonic() + _LINGER_S
    try:
        while True:
            process, _ = os.waitpid(-1, os.WNOHANG)
            if process:
                ended.append(process)
                continue
            if time.monotonic() > deadline:
                for process, _ in below(os.getpid()):
                    os.kill(process, signal.SIGKILL)
            time.sleep(_SAMPLED_EVERY_S)
    except ChildProcessError:
        return ended
