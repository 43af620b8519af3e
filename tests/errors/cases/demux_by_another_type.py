import headrace as hr

flow = hr.Flow("numbers")
numbers = flow.source("numbers", int)
numbers.demux(hr.col.value, ["one", "two"])
