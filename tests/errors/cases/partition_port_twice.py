import penstock as ps

flow = ps.Flow("numbers")
numbers = flow.source("numbers", int)
numbers.partition(lambda n: "a", ["a", "a"])
