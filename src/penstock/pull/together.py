"""together: several pipelines as one run."""

from __future__ import annotations

from penstock.pull.piece_checks import only
from penstock.pull.pipeline import Pipeline


def together(*pipelines: Pipeline) -> Pipeline:
    """Complete pipelines that run as one, beside each other: those that share something (the branches of
    `tee` and `fork`, the halves of a `pair`) or just belong together. Its result is the tuple of theirs.

    It is finished when all are. Where one fails the others go on; its error is raised when all are
    finished, with those that came later attached.

    >>> from penstock.pull import collect, pull, values
    >>> together(pull(values("ab"), collect()), pull(values([1]), collect())).run()
    (['a', 'b'], [1])
    """
    complete = only(Pipeline, "together", pipelines)
    segments = (segment for pipeline in complete for segment in pipeline.segments)
    return Pipeline(tuple(segments), results_of_all=True)
