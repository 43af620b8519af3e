"""A borrower comes before the pipeline has been started."""

from headrace.pull import collect, lend, map, pull, values

lender = lend()
pipeline = pull(values([1, 2]), lender, collect())
lender.lend(map(str))
