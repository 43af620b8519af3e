"""A full disk ends a run with an error, not the process."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

import headrace as hr
from headrace.cli.exit_codes import FAILED, exit_code
from headrace.engine.checkpointed_state import CheckpointedState
from headrace.errors import DiskFull
from tests.golden import MESSAGES, assert_golden

_RUN = """
import sys
import headrace as hr
from headrace.errors import DiskFull

flow = hr.Flow("numbers")
numbers = flow.source("numbers", int).select(n=hr.col.value)
flow.sink("counts", numbers.group_by("n").agg(x=hr.count()))
try:
    hr.run(flow, {"numbers": range(40_000)}, {"counts": []}, checkpoint=sys.argv[1], tick_rows=4_000)
except DiskFull as error:
    print(error.code, error.facts["path"])
else:
    print("done")
"""


def test_the_error_names_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    flow = hr.Flow("numbers")
    flow.sink("out", flow.source("numbers", int))
    full = OSError(errno.ENOSPC, "No space left on device", "state/commits/000000000001")
    monkeypatch.setattr(CheckpointedState, "commit", mock.Mock(side_effect=full))
    with pytest.raises(DiskFull) as error:
        hr.run(flow, {"numbers": [1]}, {"out": []}, checkpoint="state")
    assert_golden(MESSAGES / "disk_full.txt", f"{error.value}\n")
    assert exit_code(error.value) == FAILED


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte in memory."""
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("only root can mount a small file system")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    "free", [160, *(pytest.param(kb, marks=pytest.mark.verify) for kb in (0, 24, 40, 72, 100, 200))]
)
def test_a_run_without_space_ends_with_an_error_and_goes_on_later(small_disk: Path, free: int) -> None:
    filler, checkpoint = small_disk / "filler", small_disk / "checkpoint"
    filler.write_bytes(bytes((1024 - free) << 10))
    command = [sys.executable, "-c", _RUN, str(checkpoint)]
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stdout[:22]) == (0, f"P305 {small_disk}"[:22]), first.stderr
    filler.unlink()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (0, "done\n"), again.stderr
