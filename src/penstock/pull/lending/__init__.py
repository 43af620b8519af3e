"""Lending: the values of a stream worked on by borrowers that come, go and fail."""
