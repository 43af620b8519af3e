from headrace.pull import collect, fork, pull, together, values

small, large = fork(values([1, 20, 300]), lambda value: len(str(value)), keys=(1, 2))
together(pull(small, collect()), pull(large, collect())).run()
