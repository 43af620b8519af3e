import penstock as ps

flow = ps.Flow("popular words")
words = flow.table("words", str)
counts = words.group_by("value").agg(n=ps.count())
flow.sink("popular", counts.at_least(100))
ps.explain(flow)
