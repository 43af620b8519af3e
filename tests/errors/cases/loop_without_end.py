import headrace as hr

flow = hr.Flow("doubling")
seed = flow.source("seed", int)
numbers = flow.feedback(int, max_iterations=20)
more = numbers.flat_map(lambda n: [2 * n, 2 * n + 1], returns=int)
numbers.close(seed.union(more))
flow.sink("out", numbers)
hr.Engine(flow, max_iterations=10).tick(seed=[1])
