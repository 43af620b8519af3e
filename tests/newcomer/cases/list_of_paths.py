from headrace.io import CsvFiles

CsvFiles(["a.csv", "b.csv"])
