from headrace.pull import collect, pull, tee, together, values

plain, copy = tee(values([1, 2]))
together(pull(plain, collect()), pull(plain, collect()), pull(copy, collect())).run()
