"""Codes of censored times that may be those of another convention, or none."""

import numpy as np
import pytest

from latlin.additive import AdditiveModel
from latlin.linear import BayesianSurvivalRegression
from latlin.numerics.alerts import MisfitWarning

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 2))
TIMES = np.exp(RNG.standard_normal(12))
CODES = np.resize([1, 2], 12)


def test_one_and_two_alone_are_questioned():
    with pytest.warns(MisfitWarning, match=r"where 1 means censored and 2 observed.*event == 2"):
        BayesianSurvivalRegression(prior_scale=1.0).fit(X, TIMES, event=CODES)
    with pytest.warns(MisfitWarning, match="event == 2"):
        AdditiveModel("t | event(e) ~ 1", family="weibull", hyperparameters="fixed").fit({"t": TIMES, "e": CODES})


@pytest.mark.parametrize("codes", [[1, 0], [0, 1, 2], [True, False], [1, 1]])
def test_other_codes_are_not(codes):
    BayesianSurvivalRegression(prior_scale=1.0).fit(X, TIMES, event=np.resize(codes, 12))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_codes_that_are_no_numbers_are_named(bad):
    codes = np.array([1.0, bad, *np.ones(10)])
    with pytest.raises(ValueError, match=r"event must hold finite numbers, got (nan|inf) in 1 row, first in row 1"):
        BayesianSurvivalRegression(prior_scale=1.0).fit(X, TIMES, event=codes)
