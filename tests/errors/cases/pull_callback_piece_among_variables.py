from penstock.pull import values
from penstock.pull.dataflow import collect, pull

pull(values([1, 2]), collect())
