from penstock.io import CsvFiles

CsvFiles("in", delimiter=";")
