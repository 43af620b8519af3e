"""Delivery of ticks: guarantees, keys, files that appear whole, and prepared ticks that survive a crash."""
