from headrace.pull import collect, map, pull, sorted_merge, tee, values

plain, squares = tee(values([1, 2, 3]))
both = sorted_merge(plain, pull(squares, map(lambda n: n * n)))
pull(both, collect()).run()
