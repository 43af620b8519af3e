import headrace as hr
from headrace.testing.compute import Recipe, Simulation


def below(most: int) -> hr.Flow:
    flow = hr.Flow("below")
    flow.sink("below", flow.table("numbers", int).filter(hr.col.value < most))
    return flow


few = Recipe(below(3), rows={"numbers": lambda random: random.randint(0, 5)})
many = Recipe(below(100), rows={"numbers": lambda random: random.randint(0, 200)})
Simulation(seed=1, recipes={"few": few, "many": many})
