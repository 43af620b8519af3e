import os

from headrace.pull import pull, to_file, values

pull(values(["a line"]), to_file(os.devnull)).run()
