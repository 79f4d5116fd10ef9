"""Draws of additive models: units of the table, terms and hyperparameters together, ArviZ old and new."""

import sys
import types

import numpy as np
import pytest

from latlin.additive import AdditiveModel

RNG = np.random.default_rng(0)
N = 120
TABLE = {
    "x": 100.0 * RNG.normal(size=N),
    "g": np.resize([f"g{k}" for k in range(6)], N),
    "t": np.resize(np.arange(10), N),
}
TABLE["y"] = 0.02 * TABLE["x"] + np.resize(RNG.normal(size=6), N) + 0.3 * RNG.normal(size=N)


@pytest.fixture
def stub(monkeypatch):
    """ArviZ that returns what it is given."""
    made = types.ModuleType("arviz")
    made.from_dict = lambda **groups: groups
    monkeypatch.setitem(sys.modules, "arviz", made)
    return made


@pytest.fixture(scope="module")
def model():
    return AdditiveModel("y ~ x + (1 | g)").fit(TABLE)


def test_draws_have_the_moments_of_the_effects_in_the_units_of_the_table(stub, model):
    data = model.to_arviz(20_000, random_state=0)
    for variable, table in (("coefficients", model.effects()), ("g", model.effects("g"))):
        draws = data["posterior"][variable]
        assert draws.shape == (1, 20_000, len(table))
        assert data["coords"][f"{variable}_dim"] == table.names
        sd = table.column("sd")
        np.testing.assert_allclose(draws[0].mean(axis=0), table.column("mean"), atol=0.05 * sd.max())
        np.testing.assert_allclose(draws[0].std(axis=0), sd, rtol=0.06)
    for row in model.hyperparameters_.rows:
        drawn = data["posterior"][row["name"]][0]
        assert drawn.mean() == pytest.approx(row["mean"], rel=0.05)


def test_log_likelihoods_are_those_of_the_draws(stub, model):
    data = model.to_arviz(50, random_state=1)
    coefficients, groups, sigma = (data["posterior"][name][0] for name in ("coefficients", "g", "sigma"))
    level = np.unique(TABLE["g"], return_inverse=True)[1]
    mean = coefficients[:, :1] + coefficients[:, 1:] * TABLE["x"] + groups[:, level]
    z = (TABLE["y"] - mean) / sigma[:, None]
    expected = -0.5 * z**2 - np.log(sigma)[:, None] - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(data["log_likelihood"]["y"][0], expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_array_equal(data["observed_data"]["y"], TABLE["y"])


def test_rows_that_are_equal_are_counted_as_often_as_they_come(stub):
    table = {"g": np.repeat(["a", "b", "c"], 40), "n": np.tile([0, 1, 1, 2], 30)}
    data = AdditiveModel("n ~ (1 | g)", "poisson").fit(table).to_arviz(5, random_state=0)
    assert data["log_likelihood"]["y"].shape == (1, 5, 120)
    np.testing.assert_array_equal(data["observed_data"]["y"], table["n"])
    rate = data["posterior"]["coefficients"][0] + np.repeat(data["posterior"]["g"][0], 40, axis=1)
    expected = table["n"] * rate - np.exp(rate) - np.log([1, 1, 2])[table["n"]]
    np.testing.assert_allclose(data["log_likelihood"]["y"][0], expected, rtol=1e-6)


def test_a_model_of_a_file_has_draws_without_rows(stub, model, tmp_path):
    import latlin

    model.save(tmp_path / "model")
    data = latlin.load(tmp_path / "model").to_arviz(7, random_state=0)
    assert data["posterior"]["g"].shape == (1, 7, 6)
    assert "log_likelihood" not in data


def test_arviz_1_takes_all_groups_as_one_dict(stub, model):
    stub.__version__, stub.from_dict = "1.0.0", lambda groups, **named: (groups, named)
    groups, named = model.to_arviz(3, random_state=0)
    assert set(groups) == {"posterior", "log_likelihood", "observed_data"}
    assert named["dims"]["g"] == ["g_dim"]


def test_arviz_itself_takes_them(model):
    arviz = pytest.importorskip("arviz")
    data = model.to_arviz(200, random_state=0)
    assert list(arviz.summary(data, var_names=["coefficients"], kind="stats").index) == [
        "coefficients[Intercept]",
        "coefficients[x]",
    ]
