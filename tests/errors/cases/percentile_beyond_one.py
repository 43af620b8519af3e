import headrace as hr
from headrace import col

hr.percentile(col.price, 95)
