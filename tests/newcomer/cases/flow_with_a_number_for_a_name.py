from penstock import Flow

Flow(3)
