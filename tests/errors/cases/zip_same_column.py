import penstock as ps

flow = ps.Flow("numbers")
numbers, words = flow.source("numbers", int), flow.source("words", str)
numbers.zip(words)
