"""A saved mixture answers as before, a stream goes on, and nothing but arrays and text is in the file."""

import numpy as np
import pytest

import latlin
from latlin.linear import BayesianLinearRegression
from latlin.mixture import BayesianGaussianMixture
from latlin.mixture.schedules import RobbinsMonro

X = np.concatenate([np.random.default_rng(k).normal(5.0 * k, 1.0, (40, 2)) for k in range(2)])


def same(saved, again):
    np.testing.assert_array_equal(again.score_samples(X), saved.score_samples(X))
    np.testing.assert_array_equal(again.predict_proba(X), saved.predict_proba(X))
    np.testing.assert_array_equal(again.sample(5, random_state=0)[0], saved.sample(5, random_state=0)[0])
    assert again.lower_bound_ == saved.lower_bound_
    assert again.n_active_ == saved.n_active_


@pytest.mark.parametrize("covariance", ["full", "tied", "diagonal", "spherical", "fixed"])
@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick-breaking"])
def test_a_fit(covariance, weight_prior, tmp_path):
    saved = BayesianGaussianMixture(3, covariance=covariance, weight_prior=weight_prior, random_state=0).fit(X)
    saved.save(tmp_path / "m.latlin")
    again = latlin.load(tmp_path / "m.latlin")
    same(saved, again)
    assert again.get_params() == saved.get_params()
    np.testing.assert_array_equal(again.trace_, saved.trace_)
    assert again.mixture_.kl(again.posterior_) == saved.mixture_.kl(saved.posterior_)


def test_a_stream_goes_on(tmp_path):
    saved = BayesianGaussianMixture(2, step=RobbinsMonro(delay=5.0), mean_prior=np.zeros(2), random_state=0)
    saved.partial_fit(X[::2]).save(tmp_path / "m.latlin")
    again = BayesianGaussianMixture.load(tmp_path / "m.latlin")
    same(saved.partial_fit(X[1::2]), again.partial_fit(X[1::2]))


def test_what_is_not_a_mixture(tmp_path):
    BayesianLinearRegression().fit(X, X[:, 0] + X[:, 1] ** 2).save(tmp_path / "r.latlin")
    with pytest.raises(ValueError, match=r"not 'latlin.mixture.BayesianGaussianMixture'"):
        BayesianGaussianMixture.load(tmp_path / "r.latlin")


def test_what_cannot_be_saved(tmp_path):
    odd = BayesianGaussianMixture(1).fit(X)
    odd.step = object()
    with pytest.raises(ValueError, match=r"options\.step cannot be saved"):
        odd.save(tmp_path / "o.latlin")
    assert not list(tmp_path.iterdir())
