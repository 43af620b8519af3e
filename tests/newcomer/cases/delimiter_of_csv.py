from headrace.io import CsvFiles

CsvFiles("in", delimiter=";")
