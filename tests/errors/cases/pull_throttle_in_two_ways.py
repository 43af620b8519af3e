from headrace.pull import collect, pull, throttle, values

pull(values("abc"), throttle(per_second=10, every=0.1), collect()).run()
