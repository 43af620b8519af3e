import headrace as hr

flow = hr.Flow("popular words")
words = flow.table("words", str)
counts = words.group_by("value").agg(n=hr.count())
flow.sink("popular", counts.at_least(100))
hr.explain(flow)
