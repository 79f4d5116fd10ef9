"""Passes on a cluster: which client computes them, and whether its workers still can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from latlin.numerics.alerts import alert

# --- What happens to clusters, in sentences: what was lost, and how to go on.
#
# Dask starts the tasks of a dead worker again on the others, so that a fit does not notice. What is left are a
# scheduler that is gone and tasks that take every worker down with them.

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
def explain_faults() -> Iterator[None]:
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
        sentence = SENTENCES[type(error).__name__].format(limit=_describe_limit(error))
        detail = " ".join(str(error).split())
        raise ClusterError(sentence + (f" (Dask says: {detail})" if detail else "")) from error


def _describe_limit(error: Any) -> str:
    """What the last worker that died was allowed to use, where that is known and limited."""
    limit = getattr(getattr(error, "last_worker", None), "memory_limit", 0)
    return f" (the memory limit of the last one was {format_bytes(limit)})" if limit else ""


def format_bytes(count: int) -> str:
    """A size of memory.

    Examples
    --------
    >>> format_bytes(3 * 2**29)
    '1.5 GiB'
    """
    return f"{count / 2**30:.3g} GiB" if count >= 2**30 else f"{count / 2**20:.4g} MiB"


# --- How worker processes should be started: what `dask.config` must say before a `LocalCluster` is made.
#
# Dask's workers give freed memory back to the system at once. A pass works on the pieces of a block in arrays of some
# megabytes, each of which would then be mapped, zeroed and unmapped anew: that costs as much time as the sums
# themselves.

_BEFORE = "distributed.nanny.pre-spawn-environ"
#: bytes below which freed memory is kept by the process
KEPT = str(256 * 2**20)
#: for `dask.config.set`, before workers are started
WORKER_SETTINGS = {f"{_BEFORE}.MALLOC_TRIM_THRESHOLD_": KEPT, f"{_BEFORE}.MALLOC_MMAP_THRESHOLD_": KEPT}


#: seconds between two looks at a cluster that has not answered yet
LOOK = 10.0
#: looks in a row that must find no worker, or all of them paused and idle
LOOKS = 6


def current_client() -> Any:
    """The client that Dask itself would compute on now; None for schedulers of this process, and within tasks."""
    from dask.base import get_scheduler

    owner = getattr(get_scheduler(), "__self__", None)
    return owner if hasattr(owner, "subscribe_topic") and not _in_task() else None


def _in_task() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def compute_answer(client: Any, wanted: Any) -> Any:
    """What the cluster finds; an error when all its workers have stopped for want of memory, which Dask waits out.

    Workers may still come: a cluster without any is waited for, after a warning.
    """
    future = client.compute(wanted)
    try:
        _wait_for(client, future)
        return future.result()
    finally:
        future.release()  # an interrupt is remembered with all that it passed through, and the work would go on


def _wait_for(client: Any, future: Any) -> None:
    from distributed import wait

    idle = 0
    while not future.done():
        with client.as_current(), suppress(TimeoutError):
            wait(future, timeout=LOOK)
            return
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        idle = idle + 1 if all(map(_is_stuck, workers)) else 0
        if idle == LOOKS and workers:
            raise ClusterError(_describe_paused(workers))
        if idle == LOOKS:
            alert("the cluster has no workers: the pass over the rows waits until there are some", UserWarning)


def _is_stuck(worker: dict[str, Any]) -> bool:
    return worker["status"] == "paused" and not worker["metrics"].get("task_counts", {}).get("executing", 0)


def _describe_paused(workers: Any) -> str:
    limit = format_bytes(min(worker["memory_limit"] for worker in workers))
    return (
        f"all workers have paused for want of memory (the smallest limit is {limit}), and none goes on: "
        "cut the rows into smaller chunks, keep fewer of them in the workers' memory (persist), or give the workers "
        f"more memory. {RESUME}"
    )
