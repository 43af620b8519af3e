"""A blocking call in the thread that would have to make room."""

from headrace.pull import collect, pull, pushable, take

clicks = pushable(bound=1, thread_safe=True)
pull(clicks, take(0), collect()).start()
clicks.put(1)
