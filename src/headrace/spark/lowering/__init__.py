"""Lowering of expressions to Spark columns, with the semantics of generated Python."""
