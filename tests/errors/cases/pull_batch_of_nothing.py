from headrace.pull import batch, collect, pull, values

pull(values([1, 2, 3]), batch(0), collect()).run()
