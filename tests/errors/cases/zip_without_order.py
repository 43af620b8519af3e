import penstock as ps

flow = ps.Flow("numbers")
numbers, words = flow.source("numbers", int), flow.source("words", str)
both = numbers.union(numbers)
flow.sink("out", both.zip(words, suffix="_word"))
ps.Engine(flow)
