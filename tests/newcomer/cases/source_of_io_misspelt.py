from penstock import io

io.CSVFiles("in")
