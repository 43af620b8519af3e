import penstock as ps
from penstock import Flow

ps.run(Flow, {"orders": []})
