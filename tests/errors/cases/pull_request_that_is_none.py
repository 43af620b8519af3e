from penstock.pull import pull, sink, values
from penstock.pull.protocol import Read


def hurried(read: Read) -> None:
    read("stop", lambda end, value=None: None)


pull(values([1, 2]), sink(hurried)).run()
