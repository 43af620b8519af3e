"""A generator gives its values once."""

from headrace.pull import collect, iterate, pull

squares = (n * n for n in range(3))
pipeline = pull(iterate(squares), collect())
pipeline.run()
pipeline.run()
