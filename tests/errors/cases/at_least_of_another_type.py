import penstock as ps

flow = ps.Flow("popular words")
words = flow.source("words", str)
counts = words.group_by("value").agg(n=ps.count())
flow.sink("popular", counts.at_least("a hundred"))
