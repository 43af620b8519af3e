import penstock as ps

flow = ps.Flow("numbers")
flow.sink("out", flow.source("numbers", int))

ps.draw(flow).save("numbers.png")
