"""The checks of a model stay quiet where the model is right, and speak where it is not: rates over simulated data."""

import warnings

import numpy as np
import pandas
import pytest
from scipy.special import expit

from latlin.linear import (
    BayesianGammaRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    RobustRegression,
)

SETS = 200


def features(rng):
    """Rows of all sizes, features of several shapes."""
    n, d = int(rng.integers(30, 250)), int(rng.integers(1, 6))
    X = rng.standard_normal((n, d))
    if d > 1:
        X[:, 0] = rng.exponential(size=n)
    if d > 2:
        X[:, 1] = rng.integers(0, 2, n)
    return X, X @ rng.standard_normal(d) * 0.5


def gaussian(rng):
    X, x = features(rng)
    return (
        BayesianLinearRegression(prior_scale=1.0, noise_scale="auto", hyperparameters="maximise"),
        X,
        x + rng.standard_normal(len(x)),
    )


def logistic(rng):
    X, x = features(rng)
    y = rng.random(len(x)) < expit(x)
    y[:2] = [True, False]
    return BayesianLogisticRegression(prior_scale=1.0, engine="laplace"), X, y


def poisson(rng):
    X, x = features(rng)
    return (
        BayesianPoissonRegression(prior_scale=1.0, engine="laplace"),
        X,
        rng.poisson(np.exp(0.5 * x + 0.5)),
    )


@pytest.mark.parametrize("simulate", [gaussian, logistic, poisson])
def test_false_alarms_are_rare(simulate):
    failed = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(SETS):
            model, X, y = simulate(np.random.default_rng(seed))
            failed += [check.name for check in model.fit(X, y).checks_.failed if check.name != "dispersion"]
    # two in a hundred, all checks together
    assert len(failed) <= 0.02 * SETS, failed


def fitted(y, X, model=None):
    return (model or BayesianLinearRegression(prior_scale=1.0)).fit(pandas.DataFrame(X, columns=["age", "dose"]), y)


RNG = np.random.default_rng(0)
X = RNG.standard_normal((150, 2))
NOISE = RNG.standard_normal(150)


def test_curves_are_named():
    bent = fitted(X[:, 0] + 0.8 * X[:, 1] ** 2 + NOISE, X).checks_
    assert "residuals bend along 'dose': rows at both ends of 'dose' lie above the line" in bent.failed[0].sentence
    labels = np.random.default_rng(1).random(150) < expit(2.0 - 2.5 * X[:, 1] ** 2)
    model = BayesianLogisticRegression(prior_scale=1.0)
    assert "'dose' lie below" in fitted(labels, X, model).checks_.failed[0].sentence
    waved = fitted(2.0 * np.sin(3.0 * X[:, 0]) + 0.3 * NOISE, X).checks_
    assert "residuals follow each other along 'age'" in waved.failed[0].sentence


def test_outliers_uneven_spread_and_skew_are_named():
    odd = X[:, 0] + NOISE
    odd[17] += 9.0
    assert "the farthest row 18" in str(fitted(odd, X).checks_)
    assert "robust" in str(fitted(odd, X).checks_)
    assert not any(check.name == "noise" for check in fitted(odd, X, RobustRegression(prior_scale=1.0)).checks_.checks)
    uneven = 2.0 * X[:, 0] + np.exp(0.8 * X[:, 0]) * NOISE
    assert {check.name for check in fitted(uneven, X).checks_.failed} == {"noise"}
    skewed = X[:, 0] + 8.0 * np.random.default_rng(2).beta(1.0, 5.0, 150)
    assert "Residuals are skewed" in str(fitted(skewed, X).checks_)


def test_remedies_for_the_noise_of_a_logarithm_are_those_of_a_logarithm():
    wild = X[:, 0] + 0.2 * NOISE
    wild[3] += 8.0
    plain = fitted(wild, X).checks_.failed[0]
    logarithm = fitted(np.exp(wild), X, BayesianGammaRegression("log-normal", prior_scale=1.0)).checks_.failed[0]
    assert (plain.name, logarithm.name) == ("noise", "noise")
    assert plain.sentence == logarithm.sentence
    assert plain.remedy.endswith("RobustRegression, --family robust")
    assert "RobustRegression of the logarithm" in logarithm.remedy


def test_hidden_outliers_do_not_pass():
    """Fourteen of 75 rows of Hawkins, Bradu and Kass (1984) hide each other from least squares."""
    rng = np.random.default_rng(3)
    good = rng.uniform(0.0, 3.5, (61, 3))
    rows = np.vstack([good, rng.normal([10.0, 20.0, 30.0], 0.6, (10, 3)), rng.normal([11.0, 22.0, 35.0], 0.6, (4, 3))])
    y = np.concatenate([rng.uniform(-1, 1, 61), rng.normal(9.8, 0.5, 10), rng.normal(-0.3, 0.5, 4)])
    assert BayesianLinearRegression().fit(rows, y).checks_.verdict == "does not fit"


def test_a_combination_of_features_that_separates_is_named():
    y = X[:, 0] + X[:, 1] > 0.1
    model = fitted(y, X, BayesianLogisticRegression(prior_scale=3.0))
    (check,) = model.checks_.failed
    assert check.name == "separation"
    assert "a combination of features" in check.sentence
    assert "separates the classes False and True without an error" in check.sentence
    # the prior may keep the mean away from the plane
    apart = X[:, 0] + 0.5 * X[:, 1] > 0.1
    near = BayesianLogisticRegression(prior_scale=1.0).fit(X, apart)
    assert np.mean(near.predict(X) == apart) < 1.0
    assert "a combination of features" in near.checks_.failed[0].sentence
    # more unknowns than half the rows separate labels without any meaning
    wide = np.random.default_rng(5).standard_normal((30, 40))
    labels = np.random.default_rng(6).random(30) < 0.5
    assert BayesianLogisticRegression(prior_scale=1.0).fit(wide, labels).checks_.verdict == "fits"


def test_rows_in_blocks_are_looked_at_too():
    array = pytest.importorskip("dask.array")
    bent = np.random.default_rng(7).poisson(np.exp(np.clip(0.5 + 0.5 * X[:, 1] ** 2, None, 3.0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = BayesianPoissonRegression(prior_scale=1.0, engine="laplace").fit(X, bent)
        model = BayesianPoissonRegression(prior_scale=1.0, engine="laplace")
        blocks = model.fit(array.from_array(X, chunks=(40, 2)), array.from_array(bent, chunks=40))
    found = {check.name: check for check in blocks.checks_.checks}
    assert not found["residuals"].passed
    assert found["residuals"].sentence == {check.name: check for check in held.checks_.checks}["residuals"].sentence


def test_ordered_classes_are_looked_at():
    latent = 1.5 * X[:, 1] ** 2 + 0.5 * NOISE
    model = BayesianOrdinalRegression(prior_scale=1.0).fit(X, np.digitize(latent, [0.5, 2.0]))
    assert "residuals" in [check.name for check in model.checks_.failed]
