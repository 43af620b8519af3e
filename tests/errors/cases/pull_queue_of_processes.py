"""A queue that cannot be waited for together with other things."""

import queue

from headrace.pull import from_queue

letters = from_queue(queue.SimpleQueue())
