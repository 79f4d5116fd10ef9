"""Workers, schedulers and whole processes that die in the middle of a fit: the numbers are the same, or a sentence."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mortal_fit
from latlin.distributed.blocks import MappedBlocks
from latlin.distributed.clusters import ClusterError, explain_faults
from latlin.distributed.opening import open_blocks
from latlin.distributed.reading import read_rows
from latlin.linear import BayesianLogisticRegression
from mortal_fit import Deadly, Trap, fit, read_blocks, write_rows

distributed = pytest.importorskip("distributed", reason="Dask's distributed scheduler is not installed")
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
LIVES = {"distributed.scheduler.allowed-failures": 1, "distributed.comm.timeouts.connect": "20s"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("rows")
    write_rows(made)
    return made


@pytest.fixture(scope="module")
def undisturbed(folder):
    return fit(read_blocks(folder))


@pytest.fixture(scope="module")
def client():
    import dask

    with (
        dask.config.set(LIVES),
        distributed.LocalCluster(
            n_workers=2,
            processes=True,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as made,
    ):
        yield made


def test_a_cluster_gives_the_digits_of_threads(folder, client, undisturbed):
    np.testing.assert_array_equal(fit(read_blocks(folder, client)), undisturbed)


def test_a_worker_that_dies_with_rows_it_kept_leaves_no_trace(folder, client, undisturbed, tmp_path):
    X = client.persist(read_rows(folder / "x.npy", rows=60).X)
    blocks = open_blocks(X, read_rows(folder / "y.npy", rows=60).X, client=client)
    trap = Trap(memory=tmp_path / "died")
    np.testing.assert_array_equal(fit(blocks, trap), undisturbed)
    assert trap.memory.exists()


def test_an_estimator_does_not_notice_that_a_worker_dies(folder, client, tmp_path):
    estimator = BayesianLogisticRegression(engine="gkl", prior_scale=1.0)
    undisturbed = estimator.fit(read_blocks(folder)).posterior_
    visits = tmp_path / "visits"
    found = estimator.fit(MappedBlocks(read_blocks(folder, client), Deadly(visits))).posterior_
    assert visits.stat().st_size > 5
    np.testing.assert_array_equal(found.mean, undisturbed.mean)
    np.testing.assert_array_equal(found.trace, undisturbed.trace)


def test_a_block_that_kills_every_worker_is_said_and_resumed(folder, client, undisturbed, tmp_path):
    checkpoint = tmp_path / "checkpoint.npz"
    with pytest.raises(ClusterError, match=r"smaller chunks, or give the workers more memory.*checkpoint"):
        fit(read_blocks(folder, client), Trap(), checkpoint)
    np.testing.assert_array_equal(fit(read_blocks(folder), checkpoint=checkpoint), undisturbed)


def test_a_scheduler_that_dies_is_said_and_resumed(folder, undisturbed, tmp_path):
    checkpoint = tmp_path / "checkpoint.npz"
    process = _start("serve", stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        with distributed.Client(address, set_as_default=False) as lost:
            _quiet()
            with pytest.raises(ClusterError, match=r"scheduler was lost.*checkpoint"):
                fit(read_blocks(folder, lost), Trap(), checkpoint)
    finally:
        process.kill()
        process.communicate()
    np.testing.assert_array_equal(fit(read_blocks(folder), checkpoint=checkpoint), undisturbed)


def test_a_process_that_dies_is_resumed(folder, undisturbed):
    process = _start("fit", str(folder))
    assert process.wait(120) == -signal.SIGKILL
    assert (folder / "checkpoint.npz").exists()
    np.testing.assert_array_equal(fit(read_blocks(folder), checkpoint=folder / "checkpoint.npz"), undisturbed)


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError), explain_faults():
        raise ZeroDivisionError


def _start(*words, **options):
    """The script beside the tests, in a process of its own."""
    script = Path(mortal_fit.__file__)
    return subprocess.Popen([sys.executable, str(script), *words], env=dict(os.environ), **options)


def _quiet():
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
