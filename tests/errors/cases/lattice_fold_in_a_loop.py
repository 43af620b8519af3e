import headrace as hr
from headrace import col
from headrace.lattice import Max

flow = hr.Flow("levels")
back = flow.feedback(int)
top = flow.source("levels", int).union(back).lattice_fold(Max(), name="top")
back.close(top.filter(col.value < 9).map(lambda n: n + 1, returns=int))
flow.sink("top", top)
hr.explain(flow)
