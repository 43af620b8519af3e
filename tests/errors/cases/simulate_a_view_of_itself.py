import penstock as ps
from penstock.testing.compute import Recipe, Simulation

flow = ps.Flow("words")
flow.sink("words", flow.source("words", str).distinct())
Simulation(seed=1, recipes={"words": Recipe(flow)})
