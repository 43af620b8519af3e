from headrace.pull import pull, to_lines, values

pull(values(["a"]), to_lines("/nonesuch/orders.txt")).run()
