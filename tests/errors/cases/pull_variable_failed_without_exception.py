from headrace.pull.dataflow import error

error("the line is dead")
