import penstock as ps

flow = ps.Flow("prices")
flow.sink("out", flow.signal("a", int) + flow.signal("b", int))
ps.Engine(flow).replay(a=[1, 2], b=[1])
