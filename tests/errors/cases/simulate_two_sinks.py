import headrace as hr
from headrace.testing.compute import Recipe, Simulation

flow = hr.Flow("parts")
numbers = flow.table("numbers", int)
flow.sink("low", numbers.filter(hr.col.value < 5))
flow.sink("high", numbers.filter(hr.col.value >= 5))
Simulation(seed=1, recipes={"parts": Recipe(flow)})
