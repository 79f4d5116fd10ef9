"""Passes on a cluster: which client computes them, and whether its workers still can."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from latlin.distributed.faults import RESUME, ClusterError, told_bytes
from latlin.numerics.alerts import alert

#: seconds between two looks at a cluster that has not answered yet
LOOK = 10.0
#: looks in a row that must find no worker, or all of them paused and idle
LOOKS = 6


def ambient_client() -> Any:
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


def answer(client: Any, wanted: Any) -> Any:
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
            raise ClusterError(_told_paused(workers))
        if idle == LOOKS:
            alert("the cluster has no workers: the pass over the rows waits until there are some", UserWarning)


def _is_stuck(worker: dict[str, Any]) -> bool:
    return worker["status"] == "paused" and not worker["metrics"].get("task_counts", {}).get("executing", 0)


def _told_paused(workers: Any) -> str:
    limit = told_bytes(min(worker["memory_limit"] for worker in workers))
    return (
        f"all workers have paused for want of memory (the smallest limit is {limit}), and none goes on: "
        "cut the rows into smaller chunks, keep fewer of them in the workers' memory (persist), or give the workers "
        f"more memory. {RESUME}"
    )
