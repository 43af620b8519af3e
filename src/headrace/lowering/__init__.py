"""Interfaces between operators and engines: what a room in `headrace.operators` may implement.

An engine asks these registries for an operator's form; an operator's module registers its forms. Neither
names the other.
"""
