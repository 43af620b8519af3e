from headrace.pull.dataflow import collect, pull, values

pull(collect(), values([1, 2]))
