"""Searches with fresh randomness for what no test has seen yet: `python -m tests.fuzz --minutes 60`.

One process runs all tests that draw (those of Hypothesis, and those marked `seeds`), another random queries,
each with seeds and in an order of its own, again and again until the time is up. A failure ends nothing: what
was found is told at once, and all of it at the end, each finding once, with what shows it again. Exit code: 1
where something was.

This module is the plugin of those processes too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.queries.plan_counts import PROPERTY, summary

ROOT = Path(__file__).resolve().parents[1]
SEED = "HEADRACE_FUZZ_SEED"
PROCESSES = ((), (f"{ROOT}/tests/queries/test_random_queries.py",))
"""The tests of each process: all, and random queries, of which there are more than of all else."""
GRACE = 900
"""Seconds after the end of the time in which a test may still end; one that takes longer hangs."""


# --- in a process that runs tests --------------------------------------------------------------


class Telling:
    """Tells the process that started this one which test runs and which fails."""

    def __init__(self, config: pytest.Config) -> None:
        self.until: float = config.option.fuzz_until
        self.out = os.fdopen(config.option.fuzz_tell, "w")

    def tell(self, **what: Any) -> None:
        print(json.dumps(what), file=self.out, flush=True)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """In another order each time, by files: their tests share what takes long to start."""
        files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
        random.Random(os.environ[SEED]).shuffle(files)
        items[:] = [test for tests in files for test in tests]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.tell(begins=item.nodeid)
        try:
            return (yield)
        finally:
            if time.time() > self.until:
                item.session.shouldstop = "the time is up"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.tell(fails=report.nodeid, place="", text=report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            self.tell(counts={name: value})
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            place = f"{crash.path}:{crash.lineno}" if crash else ""
            self.tell(fails=report.nodeid, place=place, text=report.longreprtext)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-until", type=float, help="seconds since 1970")
    parser.addoption("--fuzz-tell", type=int, help="file descriptor")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Telling(config))


# --- in the one that starts them ---------------------------------------------------------------


@dataclass
class Finding:
    """A failure, how often it was seen, and what shows it again."""

    test: str
    seed: int
    text: str
    times: int = 1

    def __str__(self) -> str:
        again = f"PYTHONHASHSEED={self.seed} {SEED}={self.seed} .venv/bin/python -m pytest '{self.test}'"
        blobs = re.findall(r"@reproduce_failure\(.*?\)", self.text)
        return "\n".join(dict.fromkeys([again, *blobs]))


@dataclass
class Search:
    """What the processes have found until now."""

    until: float
    options: list[str]
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict[tuple[str, str], Finding])
    rounds: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    """Of the kinds of nodes in random queries."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, *tests: str) -> None:
        """Round after round until the time is up."""
        while time.time() < self.until:
            self.round(random.SystemRandom().randrange(1, 1 << 32), tests)

    def round(self, seed: int, tests: Sequence[str]) -> None:
        """All tests in these files and folders once, with one seed."""
        current = "no test"
        with tempfile.TemporaryFile("w+") as said:
            process, lines = self.started(seed, tests, said.fileno())
            with process, lines:
                patience = threading.Timer(max(0.0, self.until - time.time()) + GRACE, process.kill)
                patience.start()
                for line in lines:
                    told = json.loads(line)
                    current = told.get("begins", current)
                    with self.lock:
                        self.counts.update(told.get("counts", {}).get(PROPERTY, {}))
                    if "fails" in told:
                        self.found(Finding(told["fails"], seed, told["text"]), told["place"])
                code = process.wait()
                patience.cancel()
            self.rounds += 1
            # Failures are told already. What else there is: it died, it hung, there were no tests.
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
                said.seek(0)
                self.found(
                    Finding(current, seed, f"exit code {code}\n{said.read()[-10_000:]}"), f"exit code {code}"
                )

    def started(self, seed: int, tests: Sequence[str], said: int) -> tuple[subprocess.Popen[bytes], TextIO]:
        """A process, and the lines that it tells. said: where its output goes."""
        ours, its = os.pipe()
        options = ["-p", "tests.fuzz", f"--fuzz-until={self.until}", f"--fuzz-tell={its}"]
        options += ["-m", "hypothesis or seeds", *self.options, *tests]
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options],
                cwd=ROOT,
                env=os.environ | {SEED: str(seed), "PYTHONHASHSEED": str(seed)},
                pass_fds=[its],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        finally:
            os.close(its)
        return process, os.fdopen(ours)

    def found(self, finding: Finding, place: str) -> None:
        with self.lock:
            known = self.findings.setdefault((finding.test.partition("[")[0], place), finding)
            if known is finding:
                print(f"found: {finding}\n", flush=True)
            else:
                known.times += 1

    def __str__(self) -> str:
        found = sorted(self.findings.values(), key=lambda finding: finding.test)
        told = [f"{'=' * 80}\n{f.text}\n\nseen {f.times} times; again:\n{f}\n" for f in found]
        told += [summary(self.counts)] if self.counts else []
        return "\n".join([*told, f"{len(found)} findings in {self.rounds} rounds, not all of them whole"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", epilog="Other options are for pytest.")
    parser.add_argument("--minutes", type=float, default=60)
    given, options = parser.parse_known_args(arguments)
    search = Search(time.time() + 60 * given.minutes, ["-q", "-p", "no:cacheprovider", *options])
    threads = [threading.Thread(target=search.run, args=tests) for tests in PROCESSES]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        search.until = 0.0  # the processes were interrupted too, and end
        for thread in threads:
            thread.join()
    print(search)
    return 1 if search.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
