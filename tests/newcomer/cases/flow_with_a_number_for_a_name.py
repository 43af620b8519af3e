from headrace import Flow

Flow(3)
