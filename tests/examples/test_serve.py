"""The commands of the README of examples/serve, while its replicas are killed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import headrace as hr
from examples.nexmark.generator import Generator
from examples.nexmark.queries import q4
from examples.serve.insert import SIZE
from tests.examples.readme import ROOT, commands

pytest.importorskip("grpc", reason="grpcio is not installed")

README = ROOT / "examples" / "serve" / "README.md"
Changes = Counter[tuple[int, float]]


@contextmanager
def running(command: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A command of a README as somebody types it, ended with all that it has started."""
    script = (
        f'python() {{ "{sys.executable}" "$@"; }}\nheadrace() {{ python -m headrace.cli "$@"; }}\n{command}'
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "PYTHONUNBUFFERED": "1",
        "HEADRACE_CONTROLLER": (folder / "address").read_text(),
        "TMPDIR": str(folder),
    }
    process = subprocess.Popen(
        ["sh", "-c", script],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate()


def lines_until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    """What it prints up to the first line that a pattern matches."""
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found.append(line.rstrip("\n"))
        if re.search(pattern, line):
            return found
    raise AssertionError(f"it ended without {pattern!r}:\n" + "\n".join(found))


def changes_of(lines: list[str]) -> list[Changes]:
    """The changes of a subscription that was printed, time by time; no time may come back."""
    times: list[int] = []
    found: list[Changes] = []
    for line in lines:
        change = re.fullmatch(r"(\d+) ([+-]) category=(\d+) average=(\S+)", line)
        if change is None:
            continue
        time = int(change[1])
        if not times or time != times[-1]:
            times.append(time)
            found.append(Counter())
        found[-1][int(change[3]), float(change[4])] += 1 if change[2] == "+" else -1
    assert times == sorted(set(times))
    return found


def count(changes: list[Changes]) -> int:
    return sum(map(len, changes))


def changes_in_process(events: int) -> list[Changes]:
    """The changes that the in-process engine answers to the same events, tick by tick."""
    engine = hr.Engine(q4())
    ticks = Generator().ticks(events, SIZE)
    answers = (engine.tick(auctions=tick["auctions"], bids=tick["bids"])["q4"] for tick in ticks)
    found = (Counter({(row.category, row.average): weight for row, weight in answer}) for answer in answers)
    return [changes for changes in found if changes]


@pytest.mark.verify
def test_a_subscription_goes_on_while_each_replica_is_killed_and_says_what_the_engine_says(
    tmp_path: Path,
) -> None:
    start, subscribe, insert = commands(README.read_text(encoding="utf-8"))[:3]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (tmp_path / "address").write_text(f"127.0.0.1:{free.getsockname()[1]}")
    with running(start, tmp_path) as processes:
        pids = dict(re.findall(r"(\S+) +pid (\d+)", "\n".join(lines_until(processes, "Ctrl-C"))))
        with ExitStack() as stack:
            subscription = stack.enter_context(running(subscribe, tmp_path))
            shown = lines_until(subscription, "^q4: 0 rows to begin with")
            inserting = stack.enter_context(running(f"{insert} --events 6000 --per-second 2000", tmp_path))
            for replica in ("replica-a", "replica-b"):
                shown += lines_until(subscription, r"^\d+ \+")
                os.kill(int(pids[replica]), signal.SIGKILL)
                lines_until(processes, f"^{replica} +pid")
            written = "\n".join(lines_until(inserting, "Checked"))
            events = int(written.split()[0].replace(",", ""))
            expected = changes_in_process(events)
            while count(changes_of(shown)) < count(expected):
                shown += lines_until(subscription, r"^\d+ ")
    assert changes_of(shown) == expected
