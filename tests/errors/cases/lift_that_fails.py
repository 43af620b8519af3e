import penstock as ps


def inverse(value: float) -> float:
    return 1 / value


flow = ps.Flow("prices")
flow.sink("inverse", ps.lift(inverse, name="inverse")(flow.signal("price", float)))
ps.Engine(flow).replay(price=[1.0, 0.0])
