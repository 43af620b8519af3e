"""Processes of a run are killed at random moments; in the end the sinks hold exactly the right rows."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.spark.killing import outcome
from tests.spark.killing.kinds import KINDS
from tests.spark.killing.story import Story

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to see processes end"),
]

# In an order that needs few starts: what survives is killed once more.
FIVE = ("Python workers", "JVM", "executor", "driver", "driver at a step")


@pytest.mark.verify
@pytest.mark.seeds(1)
def test_after_kills_of_every_kind_the_sinks_hold_exactly_the_rows_of_a_recomputation(
    tmp_path: Path, seed: int
) -> None:
    with Story(tmp_path, random.Random(seed)) as story:
        for kind in FIVE:
            kill = KINDS[kind](story)
            print(kind, kill.moment, "went on" if kill.went_on else "ended")
            if kill.error:
                assert "SparkProcessDied" in kill.error, kill.error
                assert "run it again with the same checkpoint" in kill.error
                assert "py4j" not in kill.error
            outcome.check_so_far(tmp_path)
        story.supply(2)
        story.run_to_the_end()
    outcome.check(tmp_path)
