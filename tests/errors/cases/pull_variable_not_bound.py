from headrace.pull.dataflow import DataflowVariable

price: DataflowVariable[int] = DataflowVariable()
print(price.value)
