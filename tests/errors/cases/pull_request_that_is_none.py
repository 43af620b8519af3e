from headrace.pull import pull, sink, values
from headrace.pull.protocol import Read


def hurried(read: Read) -> None:
    read("stop", lambda end, value=None: None)


pull(values([1, 2]), sink(hurried)).run()
