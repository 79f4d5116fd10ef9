"""Folds by groups and by time: nothing of a group, or of the future, is learnt from."""

import numpy as np
import pytest
from scipy.stats import norm

from latlin.linear import BayesianLinearRegression
from latlin.report.assess import grouped_splits, held_out_densities, ordered_splits


def test_groups_are_held_out_together():
    rng = np.random.default_rng(0)
    who, y = rng.integers(0, 7, 60), rng.integers(0, 2, 60)
    for labelled in (False, True):
        splits = grouped_splits(who, y, 3, labelled)
        assert sorted(np.concatenate([test for _, test in splits]).tolist()) == list(range(60))
        for train, test in splits:
            assert not set(who[train]) & set(who[test])
    with pytest.raises(ValueError, match="folds must be between 2 and the number of groups, 7, got 8"):
        grouped_splits(who, y, 8, False)


def test_the_future_is_never_learnt_from():
    times = np.random.default_rng(0).integers(0, 30, 80)
    splits = ordered_splits(times, 4)
    assert len(splits) == 4
    for train, test in splits:
        assert times[train].max() < times[test].min()
    with pytest.raises(ValueError, match="folds must be below the number of different times, 2, got 2"):
        ordered_splits([1, 2, 1], 2)


def test_densities_are_those_of_models_of_the_training_rows():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 2))
    y = X @ [1.0, -1.0] + 0.5 * rng.standard_normal(30)
    model = BayesianLinearRegression(prior_scale=1.0, noise_scale=0.5)
    splits = ordered_splits(np.arange(30), 2)
    found = held_out_densities(model, X, y, splits)
    train, test = splits[1]
    mean, sd = model.fit(X[train], y[train]).predict(X[test], return_std=True)
    np.testing.assert_allclose(found[test], norm.logpdf(y[test], mean, sd))
    assert np.isnan(found[:10]).all()
