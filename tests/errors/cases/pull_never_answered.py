from headrace.pull import collect, pull, source


def silent(abort, answer):
    pass


pull(source(silent), collect()).run()
