import penstock as ps

flow = ps.Flow("numbers")
numbers = flow.source("numbers", int)
numbers.select(one=ps.col.value, two=ps.col.value).flatten()
