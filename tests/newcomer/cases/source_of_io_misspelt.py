from headrace import io

io.CSVFiles("in")
