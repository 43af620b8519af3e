import headrace as hr

flow = hr.Flow("numbers")
numbers, words = flow.source("numbers", int), flow.source("words", str)
both = numbers.union(numbers)
flow.sink("out", both.zip(words, suffix="_word"))
hr.Engine(flow)
