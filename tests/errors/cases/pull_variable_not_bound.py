from headrace.pull.dataflow import Variable

price: Variable[int] = Variable()
print(price.value)
