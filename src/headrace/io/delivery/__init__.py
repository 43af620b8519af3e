"""Tick delivery: guarantees, table keys, atomic files, and prepared ticks that survive a crash."""
