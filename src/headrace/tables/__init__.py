"""Tables of numbered versions, each made by one atomic commit and unchanged afterwards."""
