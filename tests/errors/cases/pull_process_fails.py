from headrace.pull import collect, process, pull

query = process(["sh", "-c", "echo 'no such table: orders' >&2; exit 3"])
pull(query.source, collect()).run()
