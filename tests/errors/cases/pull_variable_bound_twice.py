from headrace.pull.dataflow import DataflowVariable

price: DataflowVariable[int] = DataflowVariable()
price.bind(7)
price.bind(8)
