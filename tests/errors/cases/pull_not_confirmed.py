from headrace.pull import collect, pull, source, take


def tail(abort, answer):
    if abort is None:
        answer(None, "line")


pull(source(tail), take(2), collect()).run()
