"""A replica: the process that keeps views up to date, and may be killed."""
