import headrace as hr

flow = hr.Flow("numbers")
numbers = flow.source("numbers", int)
flow.sink("out", numbers)
engine = hr.Engine(flow, queue_rows=3)
engine.feed(numbers=[1, 2])
engine.feed(numbers=[3, 4])
