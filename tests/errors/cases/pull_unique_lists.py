from headrace.pull import collect, pull, unique, values

pull(values([[1, 2], [1, 2]]), unique(), collect()).run()
