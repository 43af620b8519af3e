"""Where rows have to be: a flow cut into stages, and how rows get from one to the next."""
