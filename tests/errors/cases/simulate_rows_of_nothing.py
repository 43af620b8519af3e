import headrace as hr
from headrace.testing.compute import Recipe, Simulation

flow = hr.Flow("counted")
flow.sink("counted", flow.table("words", str).group_by(hr.col.value).agg(times=hr.count()))
counted = Recipe(flow, rows={"word": lambda random: random.choice(["a", "be", "see"])})
Simulation(seed=1, recipes={"counted": counted})
