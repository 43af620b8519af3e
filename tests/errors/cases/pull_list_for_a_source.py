from headrace.pull import collect, pull

pull([1, 2, 3], collect())
