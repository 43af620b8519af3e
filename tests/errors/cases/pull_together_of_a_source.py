from headrace.pull import collect, pull, together, values

both = together(pull(values([1, 2]), collect()), values([3, 4]))
