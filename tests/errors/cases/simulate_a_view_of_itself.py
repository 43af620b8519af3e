import headrace as hr
from headrace.testing.compute import Recipe, Simulation

flow = hr.Flow("words")
flow.sink("words", flow.source("words", str).distinct())
Simulation(seed=1, recipes={"words": Recipe(flow)})
