import penstock as ps
from penstock.testing.compute import Recipe, Simulation


def below(most: int) -> ps.Flow:
    flow = ps.Flow("below")
    flow.sink("below", flow.table("numbers", int).filter(ps.col.value < most))
    return flow


few = Recipe(below(3), rows={"numbers": lambda random: random.randint(0, 5)})
many = Recipe(below(100), rows={"numbers": lambda random: random.randint(0, 200)})
Simulation(seed=1, recipes={"few": few, "many": many})
