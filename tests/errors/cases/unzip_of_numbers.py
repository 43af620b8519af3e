import penstock as ps

flow = ps.Flow("numbers")
numbers = flow.source("numbers", int)
numbers.unzip()
