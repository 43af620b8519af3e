"""Interfaces between operators and engines: forms that a package of `headrace.operators` may implement.

An engine asks these registries for an operator's form; an operator's module registers its forms. Neither
names the other.
"""
