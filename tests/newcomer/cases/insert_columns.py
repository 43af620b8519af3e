import penstock as ps

ps.insert(1, "PE", 12.5)
