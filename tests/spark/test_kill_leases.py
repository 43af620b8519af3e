"""One driver at a time: a second one is refused, and one that was superseded can do nothing more."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.spark.killing import outcome
from tests.spark.killing.processes import Driver, Ended
from tests.spark.killing.story import Story

pytestmark = [
    pytest.mark.verify,
    pytest.mark.spark,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to see processes end"),
]


def test_a_second_driver_is_refused_and_one_that_slept_while_it_was_superseded_is_fenced_off(
    tmp_path: Path,
) -> None:
    with Story(tmp_path, random.Random(5)) as story:
        story.supply(3)
        with Driver(tmp_path, stopped_in=3) as sleeper:
            sleeper.until("tick 2")
            sleeper.until_stopped()
            with pytest.raises(Ended) as refused:
                story.run_to_the_end()
            assert "CheckpointInUse" in refused.value.error
            assert f"process {sleeper.process.pid} on " in refused.value.error
            # As on a file system whose locks do not hold, or for somebody who knows better than the lock.
            (tmp_path / "checkpoint" / "lease" / "lock").unlink()
            story.run_to_the_end()
            held = outcome.held(tmp_path)
            sleeper.process.send_signal(signal.SIGCONT)
            with pytest.raises(Ended) as fenced:
                sleeper.until("done")
            assert "CheckpointInUse" in fenced.value.error
            assert "tick 3" not in sleeper.said
        assert outcome.held(tmp_path) == held
        story.supply()
        story.run_to_the_end()
    outcome.check(tmp_path)
