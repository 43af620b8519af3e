import headrace as hr

flow = hr.Flow("numbers")
numbers = flow.source("numbers", int)
numbers.select(one=hr.col.value, two=hr.col.value).flatten()
