"""The checks of the methods that build flows, for operators that were not made by them.

One function per class of operators: it raises for parameters that no method would have given, and
computes anew which columns the output has.
"""
