"""Statistics of signals, as data: what is computed over which values. How, is the engine's."""
