"""Seeded simulation of controllers, replicas and the links between them.

`Simulation(seed, recipes={"totals": Recipe(flow, key=("shop",))}).run()` generates a schedule: writes, reads,
views created and dropped, delayed messages, links cut, processes killed at any step. After every step, the
state is checked against the expected one. The same seed gives the same schedule.
"""

from headrace.testing.compute.reader_checks import ReaderViolation
from headrace.testing.compute.simulation import Simulation
from headrace.testing.compute.workload import Recipe

__all__ = ["ReaderViolation", "Recipe", "Simulation"]
