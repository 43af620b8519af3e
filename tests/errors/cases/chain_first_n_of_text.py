import headrace as hr

flow = hr.Flow("numbers")
numbers = flow.source("numbers", int)
numbers.chain_first_n("two", numbers)
