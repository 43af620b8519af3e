from headrace.pull import collect, pull, sorted_merge, values

days = sorted_merge(values([1, 4]), values([3, 2]))
pull(days, collect()).run()
