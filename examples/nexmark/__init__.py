"""Nexmark: an online auction, the usual benchmark of streaming systems."""
