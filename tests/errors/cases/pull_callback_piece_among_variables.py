from headrace.pull import values
from headrace.pull.dataflow import collect, pull

pull(values([1, 2]), collect())
