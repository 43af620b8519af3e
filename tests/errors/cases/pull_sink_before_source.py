from headrace.pull import collect, pull, values

pull(collect(), values([1, 2]))
