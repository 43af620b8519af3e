"""Statistics of signals as data. The computation is up to the engines."""
