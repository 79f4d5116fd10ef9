"""`latlin fit --scheduler tcp://…`: the digits of threads on a scheduler elsewhere; where there is none, a sentence."""

import socket

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("pyarrow")
dask = pytest.importorskip("dask", reason="Dask is not installed")
pytest.importorskip("dask.dataframe", reason="Dask is not installed")
distributed = pytest.importorskip("distributed", reason="Dask's distributed scheduler is not installed")
from typer.testing import CliRunner  # noqa: E402

from latlin.cli import options  # noqa: E402
from latlin.cli.app import app  # noqa: E402
from latlin.cli.models import load_model  # noqa: E402


@pytest.fixture
def pattern(tmp_path):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.standard_normal((90, 2)), columns=["a", "b"])
    frame["y"] = np.where(frame["a"] + rng.logistic(size=90) > 0, "yes", "no")
    for part in range(3):
        frame.iloc[30 * part : 30 * (part + 1)].to_parquet(tmp_path / f"part-{part}.parquet")
    return tmp_path / "part-*.parquet"


def fit(pattern, address, out=None):
    words = ["fit", pattern, "--target", "y", "--prior-scale", 1, "--scheduler", address, "--out", out or "none.latlin"]
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.filterwarnings("default")
def test_a_scheduler_elsewhere_gives_the_digits_of_threads(pattern, tmp_path):
    with distributed.LocalCluster(
        n_workers=1,
        processes=False,
        threads_per_worker=1,
        host="tcp://127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
    ) as cluster:
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
        there = fit(pattern, cluster.scheduler_address, tmp_path / "there.latlin")
        assert there.exit_code == 0, there.output
        assert len(cluster.scheduler.task_prefixes), "the cluster was not asked"
    here = fit(pattern, "threads", tmp_path / "here.latlin")
    assert here.exit_code == 0, here.output
    there, here = (load_model(tmp_path / f"{name}.latlin") for name in ("there", "here"))
    assert there.estimator.log_evidence_ == here.estimator.log_evidence_
    np.testing.assert_array_equal(there.estimator.coef_, here.estimator.coef_)


@pytest.fixture
def nobody():
    """The address of a port that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{taken.getsockname()[1]}"


def test_nobody_there_is_one_sentence(pattern, nobody, monkeypatch):
    monkeypatch.setattr(options, "PATIENCE", 0.5)
    result = fit(pattern, nobody)
    assert result.exit_code == 1
    assert f"no scheduler answers at {nobody}" in result.stderr
    assert dask.config.get("scheduler", None) is None
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("address", ["smoke://127.0.0.1:8786", "tcp://127.0.0.1:many"])
def test_addresses_that_are_none_are_one_sentence(pattern, address):
    result = fit(pattern, address)
    assert result.exit_code == 1
    assert address in result.stderr
    assert "unexpected" not in result.stderr
    assert dask.config.get("scheduler", None) is None
