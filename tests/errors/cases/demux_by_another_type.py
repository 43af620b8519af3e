import penstock as ps

flow = ps.Flow("numbers")
numbers = flow.source("numbers", int)
numbers.demux(ps.col.value, ["one", "two"])
