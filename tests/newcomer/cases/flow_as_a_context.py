from headrace import Flow

with Flow("shop") as flow:
    print(flow)
