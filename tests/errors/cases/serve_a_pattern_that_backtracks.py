import headrace as hr
from headrace import col
from headrace.compute.plans import check_servable
from headrace.functions import regexp_like

flow = hr.Flow("words")
words = flow.table("words", str).filter(regexp_like(col.value, r"(\w)\1"))
flow.sink("words", words)
check_servable(flow)
