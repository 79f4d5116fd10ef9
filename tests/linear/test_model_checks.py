"""What estimators say of their model once they are fitted: `checks_`."""

import pickle
from dataclasses import replace

import numpy as np
import pandas
import pytest

import latlin
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression, BayesianPoissonRegression
from latlin.linear._model_checks import LookBack
from latlin.numerics.alerts import MisfitWarning
from latlin.priors import Flat

rng = np.random.default_rng(0)
X = pandas.DataFrame(rng.standard_normal((120, 3)), columns=["age", "dose", "noise"])
Y = (X["age"] + rng.standard_normal(120) > 0.0).to_numpy()


def test_a_model_that_fits_says_so_and_keeps_it(tmp_path):
    model = BayesianLogisticRegression().fit(X, Y)
    assert model.checks_.verdict == "fits"
    assert {check.name for check in model.checks_.checks} == {"hyperparameters", "separation", "leakage", "residuals"}
    assert "Model: fits" in repr(model.summary())
    model.save(tmp_path / "model.npz")
    assert latlin.load(tmp_path / "model.npz").checks_ == model.checks_


def test_checks_are_made_when_asked_for_of_the_rows_that_were_fitted(monkeypatch):
    asked = []
    find = LookBack.find
    monkeypatch.setattr(LookBack, "find", lambda look: asked.append(look) or find(look))
    rows, weight = X.to_numpy().copy(), np.r_[np.ones(119), 0.0]
    model = BayesianLogisticRegression(prior_scale=1.0).fit(rows, Y, weight)
    assert not asked
    copied = pickle.loads(pickle.dumps(model))
    rows[:] = 0.0
    assert model.checks_ is model.checks_
    assert len(asked) == 1
    assert copied.checks_ == model.checks_
    # rows of weight zero are no rows
    assert BayesianLogisticRegression(prior_scale=1.0).fit(X[:119].to_numpy(), Y[:119]).checks_ == model.checks_
    assert model.fit(X.to_numpy(), X["age"] > 0.0).checks_.verdict == "does not fit"


def test_separation_and_leakage_are_named():
    separated = BayesianLogisticRegression().fit(X.assign(score=Y + 0.01 * X["noise"]), Y)
    assert [check.name for check in separated.checks_.failed] == ["separation"]
    assert "'score' separates" in str(separated.checks_)
    y = X["age"] + rng.standard_normal(120)
    leaked = BayesianLinearRegression().fit(X.assign(total=2.0 * y), y)
    assert "'total' copies the target" in str(leaked.checks_)
    exact = BayesianLinearRegression().fit(X.assign(total=1.8 * y + 32.0), y)
    assert [check.name for check in exact.checks_.failed] == ["leakage", "hyperparameters"]
    assert "integrate" not in exact.checks_.failed[1].remedy  # that is what it does


def test_collapsed_relevances_are_named():
    y = np.random.default_rng(1).standard_normal(120)
    collapsed = BayesianLinearRegression(hyperparameters="maximise", priors=Flat()).fit(X, y)
    assert [check.name for check in collapsed.checks_.failed] == ["hyperparameters"]
    assert "prior_scale runs to the lower end" in str(collapsed.checks_).replace("Prior", "prior")
    by_feature = BayesianLinearRegression(ard=True, hyperparameters="maximise", priors=Flat()).fit(X, y)
    each = str(by_feature.checks_).lower()
    assert "prior_scale of 'dose' runs to the lower end" in by_feature.posterior_.diagnose(random_state=0).reason
    assert "prior_scale of 'dose' runs to the lower end" in each
    assert "prior_scale[" not in each
    assert BayesianLinearRegression(prior_scale=1.0).fit(X, y).checks_.verdict == "fits"


def test_what_makes_an_approximation_rough_says_nothing_against_the_model():
    rng = np.random.default_rng(1)
    few = rng.standard_normal((12, 3))
    model = BayesianLogisticRegression(hyperparameters="maximise").fit(few, few[:, 0] + rng.standard_normal(12) > 0)
    assert model.posterior_.caution[0] == "rough"
    (check,) = [check for check in model.checks_.checks if check.name == "hyperparameters"]
    assert check.is_caution
    assert "would make the sd of" in check.sentence
    assert "--hyperparameters integrate" in check.remedy
    assert model.checks_.verdict == "fits"


def test_overdispersed_counts_do_not_fit():
    counts = np.random.default_rng(2).negative_binomial(1, 0.2, 120)
    with pytest.warns(MisfitWarning, match="overdispersed"):
        model = BayesianPoissonRegression().fit(X, counts)
    assert "dispersion" in [check.name for check in model.checks_.failed]
    assert "negative-binomial" in str(model.checks_)
    assert not hasattr(model.partial_fit(X, counts), "checks_")


def test_a_diagnosis_names_features():
    import dataclasses

    posterior = BayesianLogisticRegression(engine="gkl", hyperparameters="maximise").fit(X, Y).posterior_
    shift = 1.6 * np.sqrt(posterior.variance) * np.array([0.0, 1.0, 0.0, 0.0])
    moved = dataclasses.replace(posterior.density, mean=posterior.mean + shift)
    found = dataclasses.replace(posterior, density=moved).diagnose(random_state=0)
    assert found.verdict == "wrong"
    assert "'dose'" in found.reason


def test_a_caution_names_features_and_never_coordinates():
    rng = np.random.default_rng(0)
    posterior = BayesianLinearRegression().fit(rng.standard_normal((20, 2)), rng.standard_normal(20)).posterior_
    wary = replace(posterior, names=None, caution=("rough", "the sd of coordinate 1 would be larger"))
    assert wary.with_names(("age", "size")).caution == ("rough", "the sd of 'size' would be larger")
    assert wary.with_names(None).caution == wary.caution
