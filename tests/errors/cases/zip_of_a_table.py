import penstock as ps

flow = ps.Flow("numbers")
numbers, words = flow.source("numbers", int), flow.table("words", str)
flow.sink("out", numbers.zip(words, suffix="_word"))
ps.Engine(flow)
