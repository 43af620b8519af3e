import penstock as ps
from penstock import col
from penstock.lattice import Max

flow = ps.Flow("levels")
back = flow.feedback(int)
top = flow.source("levels", int).union(back).lattice_fold(Max(), name="top")
back.close(top.filter(col.value < 9).map(lambda n: n + 1, returns=int))
flow.sink("top", top)
ps.explain(flow)
