from headrace.pull import collect, from_lines, pull

pull(from_lines("/nonesuch/orders.txt"), collect()).run()
