from headrace.pull import collect, high_watermark, pull, values

pull(values("abc"), high_watermark(10, low=20), collect()).run()
