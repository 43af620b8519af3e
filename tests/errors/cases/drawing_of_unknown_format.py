import headrace as hr

flow = hr.Flow("numbers")
flow.sink("out", flow.source("numbers", int))

hr.draw(flow).save("numbers.png")
