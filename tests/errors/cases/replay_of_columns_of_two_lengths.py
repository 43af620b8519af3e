import headrace as hr

flow = hr.Flow("prices")
flow.sink("out", flow.signal("a", int) + flow.signal("b", int))
hr.Engine(flow).replay(a=[1, 2], b=[1])
