import penstock as ps
from penstock import col
from penstock.compute.plans import check_servable
from penstock.functions import regexp_like

flow = ps.Flow("words")
words = flow.table("words", str).filter(regexp_like(col.value, r"(\w)\1"))
flow.sink("words", words)
check_servable(flow)
