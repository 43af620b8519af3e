import headrace as hr

flow = hr.Flow("numbers")
numbers, words = flow.source("numbers", int), flow.source("words", str)
numbers.zip(words)
