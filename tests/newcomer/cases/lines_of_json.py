from penstock.io import JsonFiles

JsonFiles("in", lines=True)
