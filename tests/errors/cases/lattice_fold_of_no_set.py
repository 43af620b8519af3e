import headrace as hr
from headrace.lattice import SetUnion

flow = hr.Flow("names")
names = flow.source("names", int)
flow.sink("all", names.lattice_fold(SetUnion()))
