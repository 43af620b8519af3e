import headrace as hr
from headrace import Flow

hr.run(Flow, {"orders": []})
