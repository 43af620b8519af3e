from headrace.pull import merge, values

both = merge(values([1, 2]), [3, 4])
