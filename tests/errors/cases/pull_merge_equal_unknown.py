from headrace.pull import sorted_merge, values

days = sorted_merge(values([1, 4]), values([3, 2]), equal="first")
