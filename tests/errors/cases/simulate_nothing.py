from headrace.testing.compute import Simulation

Simulation(seed=1, recipes={})
