"""What happens to clusters, in sentences: what was lost, and how to go on.

Dask starts the tasks of a dead worker again on the others, so that a fit does not notice. What is left are a scheduler
that is gone and tasks that take every worker down with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

RESUME = "A fit that was given a checkpoint goes on from there: start a cluster, open the data again, and fit again"
LOST = f"the connection to the scheduler was lost, and with it the pass over the rows. {RESUME}"
DIED = (
    "a block of rows took down every worker that tried it, most likely for want of memory{limit}: "
    f"cut the rows into smaller chunks, or give the workers more memory. {RESUME}"
)
FULL = "a block of rows and what is worked out from it do not fit into memory: cut the rows into smaller chunks"
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
    """Turn what Dask raises when a cluster fails into a `ClusterError`; errors of the computation itself pass.

    An array that cannot be made is no fault of the cluster: it stays a `MemoryError`, with a remedy.
    """
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"{FULL} ({error})") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed" or type(error).__name__ not in SENTENCES:
            raise
        sentence = SENTENCES[type(error).__name__].format(limit=_told_limit(error))
        detail = " ".join(str(error).split())
        raise ClusterError(sentence + (f" (Dask says: {detail})" if detail else "")) from error


def _told_limit(error: Any) -> str:
    """What the last worker that died was allowed to use, where that is known and limited."""
    limit = getattr(getattr(error, "last_worker", None), "memory_limit", 0)
    return f" (the memory limit of the last one was {told_bytes(limit)})" if limit else ""


def told_bytes(count: int) -> str:
    """A size of memory.

    Examples
    --------
    >>> told_bytes(3 * 2**29)
    '1.5 GiB'
    """
    return f"{count / 2**30:.3g} GiB" if count >= 2**30 else f"{count / 2**20:.4g} MiB"
