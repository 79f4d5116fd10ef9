import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, compare
from latlin.engines import ExpectationPropagation, GaussianKL
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.logit import Logit
from latlin.potentials.probit import Probit

RNG = np.random.default_rng(1)
ROWS = RNG.standard_normal((30, 4)) + RNG.standard_normal(30)[:, None]
LABELS = RNG.integers(0, 2, 30)


def model(potential):
    return LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor(ROWS, potential)])


def test_the_ladder_of_bounds():
    engines = [
        "gkl",
        "ep",
        GaussianKL(covariance="banded", bandwidth=1),
        "map",
        "lvb",
        GaussianKL(covariance="diagonal"),
    ]
    table = compare(model(Logit(LABELS)), engines)
    names = [row["engine"] for row in table.rows]
    assert names[0] in ("lvb", "gkl(covariance='diagonal')")
    assert names.index("gkl(covariance='diagonal')") < names.index("gkl(covariance='banded', bandwidth=1)")
    assert names[3:] == ["gkl", "ep", "map"]
    bounds = [row["log evidence"] for row in table.rows[:4]]
    assert bounds == sorted(bounds)
    np.testing.assert_allclose([row["gap"] for row in table.rows[:4]], bounds[-1] - np.array(bounds))
    assert table.rows[4]["gap"] is None
    assert all(row["seconds"] > 0 for row in table.rows)
    assert table["gkl(covariance='diagonal')"].engine == "gkl"
    lines = repr(table).splitlines()
    assert lines[0].split()[:4] == ["engine", "log", "evidence", "gap"]
    assert "0.0000" in lines[5]


def test_gaps_are_to_an_exact_evidence_where_there_is_one():
    table = compare(model(Gaussian(1.0, 2.0)), [GaussianKL(covariance="diagonal"), ExpectationPropagation(power=0.5)])
    first, last = table.rows
    assert (first["kind"], last["kind"]) == ("lower bound", "exact")
    assert last["engine"] == "ep(power=0.5)"
    assert first["gap"] == pytest.approx(last["log evidence"] - first["log evidence"])
    assert first["gap"] > 0


def test_by_default_every_engine_has_a_row():
    table = compare(model(Probit(LABELS)))
    assert {row["engine"] for row in table.rows} == {"map", "laplace", "mean-field", "lvb", "ep", "gkl"}
    refused = table.rows[-1]
    assert refused["engine"] == "lvb"
    assert "not; use engine 'gkl'" in refused["note"]


def test_diagnoses_on_request():
    table = compare(model(Logit(LABELS)), ["map", "lvb", "gkl"], diagnose=True, random_state=0)
    by_name = {row["engine"]: row for row in table.rows}
    assert by_name["gkl"]["verdict"] == "accurate"
    assert by_name["map"]["verdict"] == "wrong"
    assert by_name["gkl"]["low"] < by_name["gkl"]["high"]
    assert np.isfinite(by_name["gkl"]["k̂"])
    assert by_name["map"]["k̂"] == np.inf
    assert repr(table).splitlines()[0].split()[-5:] == ["k̂", "low", "high", "verdict", "note"]
    assert "accurate" in table._repr_html_()
