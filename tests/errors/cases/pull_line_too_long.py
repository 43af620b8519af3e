from headrace.pull import collect, lines, pull, values

pull(values([b"short\n", b"much longer"]), lines(longest=8), collect()).run()
