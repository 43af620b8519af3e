import headrace as hr

flow = hr.Flow("numbers")
numbers, words = flow.source("numbers", int), flow.table("words", str)
flow.sink("out", numbers.zip(words, suffix="_word"))
hr.Engine(flow)
