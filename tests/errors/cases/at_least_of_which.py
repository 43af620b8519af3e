import headrace as hr
from headrace import col

flow = hr.Flow("popular words")
words = flow.source("words", str)
counts = words.group_by("value").agg(n=hr.count(), last=hr.max(col.value))
flow.sink("popular", counts.at_least(100))
