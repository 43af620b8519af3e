from penstock.pull.dataflow import error

error("the line is dead")
