"""Row expressions: tree, types, checks, generated Python."""
