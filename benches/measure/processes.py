"""What processes take: memory and processor time of this one and of all that it has started, from `/proc`."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


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
