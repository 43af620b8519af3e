from headrace.pull import pull, reduce, values

pull(values([]), reduce(max)).run()
