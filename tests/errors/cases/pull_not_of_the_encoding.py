from headrace.pull import collect, lines, pull, values

pull(values(["café\n".encode("latin-1")]), lines(), collect()).run()
