"""The same answers as SQL over the raw rows and their weights, recomputed from all input so far.

A flight that was taken back is there twice, with the weights 1 and -1.
"""

from __future__ import annotations


def sql(start: str) -> dict[str, str]:
    """Sink name -> query. `start` as in `flow.flow`."""
    delays = """
        SELECT a.state, sum(f.weight)::BIGINT AS flights, sum(f.weight * f.delay) / sum(f.weight) AS average
        FROM flights f JOIN airports a ON a.iata = f.origin
        GROUP BY a.state HAVING sum(f.weight) > 0
    """
    reachable = f"""
        WITH RECURSIVE reached(airport) AS (
            SELECT destination FROM routes WHERE origin = '{start}'
            UNION
            SELECT r.destination FROM reached JOIN routes r ON r.origin = reached.airport
        )
        SELECT airport, a.name, a.state FROM reached JOIN airports a ON a.iata = airport
    """
    return {
        "delays": delays,
        "worst": f"SELECT * FROM ({delays}) ORDER BY average DESC, state, flights LIMIT 5",
        "reachable": reachable,
        "unserved": f"""
            SELECT * FROM ({reachable}) WHERE airport NOT IN (
                SELECT destination FROM flights GROUP BY destination HAVING sum(weight) > 0
            )
        """,
    }
