import headrace as hr


def inverse(value: float) -> float:
    return 1 / value


flow = hr.Flow("prices")
flow.sink("inverse", hr.lift(inverse, name="inverse")(flow.signal("price", float)))
hr.Engine(flow).replay(price=[1.0, 0.0])
