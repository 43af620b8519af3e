import headrace as hr

flow = hr.Flow("prices")
a, b = flow.signal("a", int), flow.signal("b", int)
flow.sink("ratio", a / b)
engine = hr.Engine(flow)
engine.tick(a=1)
engine.tick(b=0)
