"""Pushed from a thread that the pipeline does not expect."""

import threading

from headrace.pull import collect, pull, pushable

clicks = pushable()
pull(clicks, collect()).start()
raised: list[Exception] = []


def work() -> None:
    try:
        clicks.push(1)
    except Exception as error:
        raised.append(error)


thread = threading.Thread(target=work)
thread.start()
thread.join()
raise raised[0]
