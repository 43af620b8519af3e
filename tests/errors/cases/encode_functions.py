import headrace as hr
from headrace.compute.plans import encode

flow = hr.Flow("prices")
prices = flow.source("prices", float)
dear = prices.filter(lambda price: price > 100)
rounded = dear.map(round, returns=int, name="whole")
flow.sink("rounded", rounded)
encode(flow)
