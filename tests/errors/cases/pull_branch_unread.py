from headrace.pull import collect, pull, tee, values

plain, copy = tee(values([1, 2]))
pull(plain, collect()).run()
