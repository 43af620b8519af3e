"""US flights of 2001, day by day, with corrections that take flights back."""
