from penstock.pull import process

process("sort -n")
