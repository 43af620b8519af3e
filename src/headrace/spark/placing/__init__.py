"""Placement of rows: the stages of a flow, and the exchanges between them."""
