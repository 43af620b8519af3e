from headrace.pull import collect, pull, values

pull(values([1, 2]), lambda value: value + 1, collect())
