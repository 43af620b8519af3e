from headrace.io import JsonFiles

JsonFiles("in", lines=True)
