"""A seeded simulation of controllers, replicas and the links between them.

`Simulation(seed).run()` makes a schedule: writes, reads, views that come and go, messages that wait, links
that are cut, processes that are killed at any step. After every step it is compared with what is right. A
seed that fails can be run again: `python -m penstock.testing.compute SEED --trace`.

The views are some that try everything, or those of the user: `Simulation(seed, recipes={"totals":
Recipe(flow, key=("shop",))})`.
"""

from penstock.testing.compute.readers import Violation
from penstock.testing.compute.recipes import Recipe
from penstock.testing.compute.simulation import Simulation

__all__ = ["Recipe", "Simulation", "Violation"]
