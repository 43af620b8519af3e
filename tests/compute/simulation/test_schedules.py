"""Random schedules of a controller, replicas, cut links and kills: sixty, three hundred in `make verify`, ten
thousand in benches/schedules.py."""

from __future__ import annotations

import pytest

from penstock.testing.compute import Simulation

SEEDS = 300
STEPS = 200
TOGETHER = 30
"""Schedules in one test, so that the report stays short."""


@pytest.mark.seeds(SEEDS, together=TOGETHER, verify_from=60)
def test_everybody_sees_what_is_right_whatever_dies(seeds: range) -> None:
    for seed in seeds:
        simulation = Simulation(seed, steps=STEPS)
        try:
            simulation.run()
        except Exception as error:
            error.add_note(f"python -m penstock.testing.compute {seed} --steps {STEPS} --trace")
            raise


def test_a_seed_makes_the_same_schedule_again() -> None:
    traces = []
    for _ in range(2):
        simulation = Simulation(7)
        simulation.run()
        traces.append(list(simulation.trace))
    assert traces[0] == traces[1]
