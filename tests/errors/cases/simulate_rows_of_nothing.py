import penstock as ps
from penstock.testing.compute import Recipe, Simulation

flow = ps.Flow("counted")
flow.sink("counted", flow.table("words", str).group_by(ps.col.value).agg(times=ps.count()))
counted = Recipe(flow, rows={"word": lambda random: random.choice(["a", "be", "see"])})
Simulation(seed=1, recipes={"counted": counted})
