"""Where `latlin fit` computes when the rows come in blocks: threads, processes of this machine, or a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import CRITICAL
from typing import Any

from latlin.distributed.clusters import WORKER_SETTINGS

#: seconds to wait for the answer of a scheduler
PATIENCE = 10


@contextmanager
def scheduler(words: str) -> Iterator[None]:
    """Dask computes there while this lasts: "threads", "local" (one process per core) or the address of a scheduler."""
    need_dask()
    if words == "threads":
        yield from _threads()
    elif words == "local":
        yield from _local()
    elif "://" in words:
        yield from _cluster(words)
    else:
        raise ValueError(f"scheduler must be 'threads', 'local' or an address like tcp://host:8786, got {words!r}")


def need_dask() -> None:
    """A sentence that says what to install, if Dask is missing."""
    try:
        import_module("dask.dataframe")
        import_module("distributed")
    except ImportError as error:
        raise ImportError("rows in blocks need Dask: install latlin[cli,parquet,dask]") from error


def _threads() -> Iterator[None]:
    import dask

    with dask.config.set(scheduler="threads"):
        yield


def _local() -> Iterator[None]:
    import dask

    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    options["silence_logs"] = CRITICAL  # what a block refuses is said here, once
    with (
        dask.config.set(WORKER_SETTINGS),
        LocalCluster(n_workers=os.cpu_count(), processes=True, **options) as cluster,
        Client(cluster),
    ):
        yield


def _cluster(address: str) -> Iterator[None]:
    from distributed.comm import get_address_host_port

    from distributed import Client

    try:
        # a client of an address that is none would not connect, nor let go of Dask
        get_address_host_port(address)
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise ValueError(f"no scheduler answers at {address}: {error}") from error
    with client:
        yield
