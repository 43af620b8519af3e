from penstock.io import CsvFiles

CsvFiles(["a.csv", "b.csv"])
