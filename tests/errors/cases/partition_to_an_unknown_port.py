import headrace as hr

flow = hr.Flow("numbers")
even, odd = flow.source("numbers", int).partition(lambda n: n % 3, 2)
flow.sink("even", even)
hr.Engine(flow).tick(numbers=[3, 4, 5])
