from headrace.pull import pull

pull()
