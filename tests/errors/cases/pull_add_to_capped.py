from headrace.pull import many, values

letters = many([values("ab")])
letters.add(values("c"))
