"""Statistics of signals as data. Engines implement them."""
