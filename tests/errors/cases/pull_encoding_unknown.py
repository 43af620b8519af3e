from penstock.pull import lines

lines("utf8mb4")
