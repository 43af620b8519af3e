import headrace as hr

hr.insert(1, "PE", 12.5)
