import penstock as ps

flow = ps.Flow("prices")
a, b = flow.signal("a", int), flow.signal("b", int)
flow.sink("ratio", a / b)
engine = ps.Engine(flow)
engine.tick(a=1)
engine.tick(b=0)
