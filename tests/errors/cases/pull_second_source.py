from headrace.pull import collect, pull, values

pull(values([1]), values([2]), collect())
