from headrace.io import JsonFiles

JsonFiles("in", dead_leter="bad")
