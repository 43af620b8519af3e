"""What the checkers read is read by them alone."""

collect_ignore_glob = ["accepted/*.py", "rejected/*.py"]
