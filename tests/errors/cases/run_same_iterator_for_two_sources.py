import headrace as hr

flow = hr.Flow("sums")
left = flow.source("left", int)
right = flow.source("right", int)
flow.sink("all", left.union(right))

rows = iter([1, 2, 3])
hr.run(flow, sources={"left": rows, "right": rows})
