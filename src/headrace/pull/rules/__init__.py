"""Rules of pull-streams, one documented function each.

A rule looks at the trace of an edge (a `TracedEdge`), or at both edges of a transformer, and yields a `Fault`
for every event that breaks it. Its number is the beginning of its name and its sentence the beginning of its
docstring; `docs/reference/pull-streams.md` lists them with examples.
"""
