import penstock as ps

flow = ps.Flow("sums")
left = flow.source("left", int)
right = flow.source("right", int)
flow.sink("all", left.union(right))

rows = iter([1, 2, 3])
ps.run(flow, sources={"left": rows, "right": rows})
