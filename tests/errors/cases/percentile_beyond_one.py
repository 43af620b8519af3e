import penstock as ps
from penstock import col

ps.percentile(col.price, 95)
