from headrace.pull.dataflow import Variable

price: Variable[int] = Variable()
price.bind(7)
price.bind(8)
