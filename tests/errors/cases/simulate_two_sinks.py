import penstock as ps
from penstock.testing.compute import Recipe, Simulation

flow = ps.Flow("parts")
numbers = flow.table("numbers", int)
flow.sink("low", numbers.filter(ps.col.value < 5))
flow.sink("high", numbers.filter(ps.col.value >= 5))
Simulation(seed=1, recipes={"parts": Recipe(flow)})
