from headrace.pull import process

process("sort -n")
