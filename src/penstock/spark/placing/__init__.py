"""Placement of rows: a flow cut into stages, and the exchanges between them."""
