from headrace.pull import collect, pair, pull, together, values

line = pair()
together(pull(values([1]), line, collect()), pull(values([2]), line, collect())).run()
