import headrace as hr

flow = hr.Flow("prices")
hr.lift(max)(1, 2)
