from headrace.pull import collect, connect, pull, values

pull(values([b"hello"]), connect("127.0.0.1", 1), collect()).run()
