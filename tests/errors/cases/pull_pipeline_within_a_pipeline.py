from headrace.pull import collect, pull, take, values

done = pull(values([1]), collect())
pull(done, take(2))
