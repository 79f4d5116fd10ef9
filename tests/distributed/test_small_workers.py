"""Workers with too little memory: rows they keep go to their disks; what cannot be done is said with their limit."""

import logging
import time

import numpy as np
import pytest

from latlin.distributed import clusters
from latlin.distributed.clusters import ClusterError, explain_faults
from latlin.distributed.opening import open_blocks
from latlin.distributed.reading import read_rows
from mortal_fit import fit, read_blocks, write_rows

dask = pytest.importorskip("dask", reason="Dask is not installed")
distributed = pytest.importorskip("distributed", reason="Dask's distributed scheduler is not installed")
MEMORY = "distributed.worker.memory."
#: of the memory that rows take only, not of the process
ROWS_ALONE = {MEMORY + "spill": False, MEMORY + "pause": False, MEMORY + "terminate": False}


@pytest.fixture
def folder(tmp_path):
    write_rows(tmp_path)
    return tmp_path


def cluster(limit, *, n_workers=1, processes=False):
    return distributed.LocalCluster(
        n_workers=n_workers,
        processes=processes,
        threads_per_worker=1,
        host="127.0.0.1" if processes else "tcp://127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=limit,
        silence_logs=logging.CRITICAL,
    )


def spilled(dask_worker):
    return dask_worker.data.spilled_total.disk


def test_rows_beyond_the_limit_go_to_disk_and_the_digits_are_the_same(folder):
    X, y = (read_rows(folder / f"{name}.npy", rows=60).X for name in "xy")
    limit = X.nbytes // 2
    with (
        dask.config.set(ROWS_ALONE),
        cluster(limit) as small,
        distributed.Client(small, set_as_default=False) as client,
    ):
        X, y = client.persist((X, y))
        found = fit(open_blocks(X, y, client=client))
        (on_disk,) = client.run(spilled).values()
    assert on_disk > X.nbytes - limit
    np.testing.assert_array_equal(found, fit(read_blocks(folder)))


def greedy(rows):
    """Rows that need more memory than any worker has; at most two gibibytes."""
    kept = [rows]
    for _ in range(32):
        kept.append(np.ones((2**23,)))
        time.sleep(0.2)
    return kept[0]


def test_a_block_that_cannot_fit_names_the_limit_and_the_remedy(folder):
    X, y = (read_rows(folder / f"{name}.npy", rows=400).X for name in "xy")
    lives = {"distributed.scheduler.allowed-failures": 0, MEMORY + "terminate": 0.6, MEMORY + "pause": False}
    with (
        dask.config.set(lives),
        cluster("1 GiB", processes=True) as small,
        distributed.Client(small, set_as_default=False) as client,
    ):
        blocks = open_blocks(X.map_blocks(greedy, meta=np.empty((0, 0))), y, client=client)
        with pytest.raises(ClusterError, match=r"want of memory \(the memory limit.* 1 GiB\): cut .* smaller chunks"):
            fit(blocks)


def test_workers_that_have_all_paused_are_no_hang(folder, monkeypatch):
    monkeypatch.setattr(clusters, "LOOK", 0.2)
    monkeypatch.setattr(clusters, "LOOKS", 2)
    with (
        dask.config.set({MEMORY + "pause": 0.001, MEMORY + "spill": False}),
        cluster("2 GiB") as small,
        distributed.Client(small, set_as_default=False) as client,
    ):
        while any(worker["status"] != "paused" for worker in client.scheduler_info()["workers"].values()):
            time.sleep(0.05)
        with pytest.raises(ClusterError, match=r"all workers have paused .*limit is 2 GiB.*smaller chunks.*persist"):
            fit(read_blocks(folder, client))


class Deserted:
    """The client of a cluster whose first worker comes after some looks."""

    def __init__(self, client):
        self.client, self.looks = client, 0

    def __getattr__(self, name):
        return getattr(self.client, name)

    def scheduler_info(self, n_workers):
        self.looks += 1
        if self.looks == 3:
            self.client.cluster.scale(1)
        return self.client.scheduler_info(n_workers=n_workers)


def test_workers_that_are_not_there_yet_are_waited_for(folder, monkeypatch):
    monkeypatch.setattr(clusters, "LOOK", 0.2)
    monkeypatch.setattr(clusters, "LOOKS", 2)
    with (
        cluster(0, n_workers=0) as none,
        distributed.Client(none, set_as_default=False) as client,
        pytest.warns(UserWarning, match="no workers"),
    ):
        found = fit(read_blocks(folder, Deserted(client)))
    np.testing.assert_array_equal(found, fit(read_blocks(folder)))


def test_an_array_that_cannot_be_made_gets_a_remedy():
    with pytest.raises(MemoryError, match=r"smaller chunks \(Unable to allocate"), explain_faults():
        np.empty(2**58)
