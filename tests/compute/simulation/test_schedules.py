"""Random schedules of a controller, replicas, cut links and kills: sixty, three hundred in `make verify`, ten
thousand in benches/schedules.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.compute.replica.in_process import arrangement, inlets, ticking
from headrace.testing.compute import Simulation
from tests.compute.simulation.default_views import default_workload

SEEDS = 300
STEPS = 200
TOGETHER = 30
"""Schedules in one test, so that the report stays short."""

SHUFFLED = """
import sys
import tests.compute.simulation.default_views

salt, program = int(sys.argv.pop(1)), sys.argv.pop(1)
modules = [module for name, module in sys.modules.items() if name.startswith("headrace.")]
for each in {each for module in modules for each in vars(module).values() if isinstance(each, type)}:
    if each.__hash__ is object.__hash__ and each.__module__.startswith("headrace."):
        each.__hash__ = lambda self: hash((id(self), salt))
exec(program)
"""
"""Runs a program where sets of objects without a hash of their own have another order for each salt."""
SCHEDULES = """
from tests.compute.simulation.__main__ import main

sys.exit(main())
"""


def trace_in_a_process(salt: int, *arguments: str, program: str = SCHEDULES) -> str:
    """What the simulator prints, with hashes of texts and of objects that are those of the salt."""
    ran = subprocess.run(
        [sys.executable, "-c", SHUFFLED, str(salt), program, *arguments],
        env={**os.environ, "PYTHONHASHSEED": str(salt)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr
    return ran.stdout


@pytest.mark.seeds(SEEDS, together=TOGETHER, verify_from=60)
def test_everybody_sees_what_is_right_whatever_dies(seeds: range) -> None:
    for seed in seeds:
        simulation = Simulation(seed, recipes=default_workload(), steps=STEPS)
        try:
            simulation.run()
        except Exception as error:
            error.add_note(f"python -m tests.compute.simulation {seed} --steps {STEPS} --trace")
            raise


@pytest.mark.seeds(40, together=10, verify_from=20)
def test_everybody_sees_what_is_right_in_columns_too(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LARGE", "MOVED", "SCANNED"):
        monkeypatch.setattr(arrangement, name, 2)
    monkeypatch.setattr(ticking, "COLUMNS", 1)
    monkeypatch.setattr(inlets, "ASKED", 1)
    for seed in seeds:
        Simulation(seed, recipes=default_workload(), steps=STEPS).run()


def test_a_seed_makes_the_same_schedule_again() -> None:
    traces: list[list[str]] = []
    for _ in range(2):
        simulation = Simulation(7, recipes=default_workload())
        simulation.run()
        traces.append(list(simulation.trace))
    assert traces[0] == traces[1]


@pytest.mark.verify
def test_a_seed_makes_the_same_schedule_in_every_process() -> None:
    first, *others = (
        trace_in_a_process(salt, "0", "20", "--steps", "150", "--trace").splitlines() for salt in (1, 2, 3)
    )
    for other in others:
        assert other == first
