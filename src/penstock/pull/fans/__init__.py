"""Fans: several streams into one, one into several, and the joints between them."""
