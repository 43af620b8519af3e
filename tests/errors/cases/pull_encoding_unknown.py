from headrace.pull import lines

lines("utf8mb4")
