import penstock as ps
from penstock import col

flow = ps.Flow("popular words")
words = flow.source("words", str)
counts = words.group_by("value").agg(n=ps.count(), last=ps.max(col.value))
flow.sink("popular", counts.at_least(100))
