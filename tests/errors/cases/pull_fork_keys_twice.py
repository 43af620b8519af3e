from headrace.pull import fork, values

small, large = fork(values([1, 20, 300]), len, keys=("a", "a"))
