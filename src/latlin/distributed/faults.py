"""What happens to clusters, in sentences: what was lost, and how to go on.

Dask starts the tasks of a dead worker again on the others, so that a fit does not notice. What is left are a scheduler
that is gone and tasks that take every worker down with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

RESUME = "A fit that was given a checkpoint goes on from there: start a cluster, open the data again, and fit again"
LOST = f"the connection to the scheduler was lost, and with it the pass over the rows. {RESUME}"
DIED = (
    "a block of rows took down every worker that tried it, most likely for want of memory: "
    f"cut the rows into smaller chunks, or give the workers more memory. {RESUME}"
)
SENTENCES = {
    "KilledWorker": DIED,
    "FutureCancelledError": LOST,
    "FuturesCancelledError": LOST,
    "CommClosedError": LOST,
    "ClosedClientError": LOST,
}


class ClusterError(RuntimeError):
    """The cluster could not finish a pass over the rows; the text says what was lost and how to go on."""


@contextmanager
def told_faults() -> Iterator[None]:
    """Turn what Dask raises when a cluster fails into a `ClusterError`; errors of the computation itself pass."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed" or type(error).__name__ not in SENTENCES:
            raise
        detail = " ".join(str(error).split())
        raise ClusterError(SENTENCES[type(error).__name__] + (f" (Dask says: {detail})" if detail else "")) from error
