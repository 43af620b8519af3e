from penstock.pull.dataflow import Variable

price: Variable[int] = Variable()
print(price.value)
