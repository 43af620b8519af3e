import penstock as ps
from penstock.lattice import SetUnion

flow = ps.Flow("names")
names = flow.source("names", int)
flow.sink("all", names.lattice_fold(SetUnion()))
