"""Factor analysis in memory: maxima, monotone EM, exact queries, missing data, manners."""

import numpy as np
import pytest
from scipy.stats import invgamma, multivariate_normal, norm
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.decomposition import FactorAnalysis as SklearnFactorAnalysis
from sklearn.utils.estimator_checks import parametrize_with_checks

from latlin.factor import (
    BinaryFactorAnalysis,
    FactorAnalysis,
    GroupFactorAnalysis,
    HeywoodWarning,
    MixedFactorAnalysis,
    NoisyICA,
    choose_components,
)
from latlin.factor.analysis.batch import objective, profile
from latlin.factor.analysis.moments import DenseMoments, RowMoments, moments
from latlin.factor.analysis.queries import varimax


@pytest.fixture(scope="module")
def wine():
    X = load_wine().data
    return (X - X.mean(axis=0)) / X.std(axis=0)


def draws(n, d, rank, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    F, psi, mean = rng.standard_normal((rank, d)), rng.uniform(0.5, 2.0, d), 3.0 * rng.standard_normal(d)
    X = mean + rng.standard_normal((n, rank)) @ F + np.sqrt(psi) * rng.standard_normal((n, d))
    if missing:
        X[rng.random(X.shape) < missing] = np.nan
    return X, F.T @ F + np.diag(psi)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_ml_and_em_find_the_maximum_on_wine(wine, rank):
    peer = SklearnFactorAnalysis(rank, svd_method="lapack", tol=1e-9, max_iter=50_000).fit(wine)
    best = peer.score(wine) * len(wine)
    ml = FactorAnalysis(rank).fit(wine)
    em = FactorAnalysis(rank, method="em").fit(wine)
    assert ml.log_likelihood_ == pytest.approx(best, abs=1e-4)
    assert em.log_likelihood_ == pytest.approx(ml.log_likelihood_, rel=1e-6)
    assert ml.log_likelihood_ == pytest.approx(ml.score(wine) * len(wine), rel=1e-10)
    assert np.diff(em.trace_).min() > -1e-9
    np.testing.assert_allclose(ml.components_, em.components_, atol=5e-3)


def test_a_heywood_case_is_said(wine):
    with pytest.warns(HeywoodWarning, match=r"feature\(s\) 2 "):
        model = FactorAnalysis(4).fit(wine)
    assert model.heywood_.tolist() == [2]
    assert model.converged_
    pandas = pytest.importorskip("pandas")
    with pytest.warns(HeywoodWarning, match=r"feature\(s\) 'c2' "):
        FactorAnalysis(4).fit(pandas.DataFrame(wine, columns=[f"c{j}" for j in range(wine.shape[1])]))


def test_profile_gradient_matches_finite_differences(wine):
    s = moments(wine, wine.mean(axis=0))
    sd = np.sqrt(s.variance)
    x = np.log(np.random.default_rng(0).uniform(0.1, 0.9, 13))
    numeric = [(profile(s, sd, x + h, 3).value - profile(s, sd, x - h, 3).value) / 2e-5 for h in 1e-5 * np.eye(13)]
    np.testing.assert_allclose(profile(s, sd, x, 3).gradient, numeric, atol=1e-8)


def test_isotropic_noise_is_probabilistic_pca(wine):
    ml = FactorAnalysis(2, noise="isotropic").fit(wine)
    em = FactorAnalysis(2, noise="isotropic", method="em").fit(wine)
    pca = PCA(2).fit(wine)
    values = np.linalg.eigvalsh(wine.T @ wine / len(wine))[::-1]
    np.testing.assert_allclose(ml.noise_variance_, values[2:].mean(), rtol=1e-10)
    np.testing.assert_allclose((ml.components_**2).sum(axis=1), values[:2] - values[2:].mean(), rtol=1e-9)
    overlap = np.abs(np.sum(ml.components_ * pca.components_, axis=1)) / np.linalg.norm(ml.components_, axis=1)
    np.testing.assert_allclose(overlap, 1.0, rtol=1e-9)
    assert ml.log_likelihood_ == pytest.approx(ml.score(wine) * len(wine), rel=1e-12)
    assert em.log_likelihood_ == pytest.approx(ml.log_likelihood_, rel=1e-8)


def test_queries_are_those_of_the_gaussian():
    X, _ = draws(300, 6, 2)
    model = FactorAnalysis(2).fit(X)
    cov = model.get_covariance()
    np.testing.assert_allclose(model.get_precision() @ cov, np.eye(6), atol=1e-10)
    np.testing.assert_allclose(model.score_samples(X), multivariate_normal(model.mean_, cov).logpdf(X), rtol=1e-10)
    z, spread = model.transform(X, return_cov=True)
    gain = model.components_ @ np.linalg.inv(cov)
    np.testing.assert_allclose(z, (X - model.mean_) @ gain.T, atol=1e-10)
    np.testing.assert_allclose(spread, np.eye(2) - gain @ model.components_.T, atol=1e-10)
    np.testing.assert_allclose(model.inverse_transform(z), z @ model.components_ + model.mean_)
    draw = model.sample(200_000, random_state=0)
    np.testing.assert_allclose(np.cov(draw.T), cov, atol=6 * np.abs(cov).max() / np.sqrt(200_000))
    u = model.novelty(draw[:20_000])
    assert abs(u.mean() - 0.5) < 0.01
    assert model.novelty(model.mean_[None] + 100.0) > 0.999999


def test_impute_equals_the_gaussian_conditional():
    X, _ = draws(400, 6, 2)
    model = FactorAnalysis(2).fit(X)
    x = X[0].copy()
    gap = np.array([1, 4, 5])
    seen = np.array([0, 2, 3])
    x[gap] = np.nan
    cov = model.get_covariance()
    gain = cov[np.ix_(gap, seen)] @ np.linalg.inv(cov[np.ix_(seen, seen)])
    mean = model.mean_[gap] + gain @ (x[seen] - model.mean_[seen])
    spread = cov[np.ix_(gap, gap)] - gain @ cov[np.ix_(seen, gap)]
    filled, std = model.impute(x[None], return_std=True)
    given = model.conditional(x)
    np.testing.assert_allclose(filled[0, gap], mean, atol=1e-10)
    np.testing.assert_allclose(std[0, gap], np.sqrt(np.diag(spread)), rtol=1e-10)
    np.testing.assert_allclose(given.covariance, spread, atol=1e-10)
    np.testing.assert_allclose(given.mean, mean, atol=1e-10)
    assert std[0, seen].max() == 0.0
    part = multivariate_normal(model.mean_[seen], cov[np.ix_(seen, seen)]).logpdf(x[seen])
    assert model.score_samples(x[None])[0] == pytest.approx(part, rel=1e-10)


def test_em_with_missing_entries_recovers_the_covariance():
    X, truth = draws(3000, 8, 2, seed=1)
    holes = np.where(np.random.default_rng(2).random(X.shape) < 0.3, np.nan, X)
    model = FactorAnalysis(2, method="em").fit(holes)
    full = FactorAnalysis(2).fit(X)
    assert np.diff(model.trace_).min() > -1e-8
    assert model.log_likelihood_ == pytest.approx(model.score_samples(holes).sum(), rel=1e-10)
    # sampling error of an entry with 49 % of the pairs seen is about 1/0.7 that of complete data
    size = np.linalg.norm(truth)
    error = np.linalg.norm(model.get_covariance() - truth) / size
    assert error < 2.0 * np.linalg.norm(full.get_covariance() - truth) / size + 0.02


def test_em_with_missing_entries_ends_where_plain_steps_crawl():
    # half as many factors as features: noises are hardly known
    rng = np.random.default_rng(2)
    x = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 6)) + 0.3 * rng.standard_normal((60, 6))
    x[rng.random(x.shape) < 0.2] = np.nan
    model = FactorAnalysis(3, method="em", max_iter=700).fit(x)
    assert model.converged_
    assert np.diff(model.trace_).min() > -1e-9
    # plain steps have −369.0967 after 2,000
    assert model.log_likelihood_ > -369.081


def test_em_without_holes_meets_the_missing_data_route(wine):
    holes = wine.copy()
    holes[0, 0] = np.nan
    rest = FactorAnalysis(2).fit(wine)
    model = FactorAnalysis(2, method="em").fit(holes)
    assert model.score(wine) == pytest.approx(rest.score(wine), rel=1e-4)


def test_latents_of_incomplete_rows(wine):
    holes = np.where(np.random.default_rng(0).random(wine.shape) < 0.2, np.nan, wine)
    em = FactorAnalysis(2, method="em", tol=1e-4).fit(holes)
    means, spread = em.transform(holes, return_cov=True)
    np.testing.assert_allclose(means, em.transform(em.impute(holes)), atol=1e-9)
    assert spread.shape == (len(wine), 2, 2)
    with pytest.raises(ValueError, match="impute"):
        FactorAnalysis(2).fit(wine).transform(holes)


def test_many_features_without_the_matrix(monkeypatch):
    X, _ = draws(60, 30, 2)
    dense = FactorAnalysis(2).fit(X)
    monkeypatch.setattr("latlin.factor.analysis.moments.DENSE_UP_TO", 5)
    rows = FactorAnalysis(2).fit(X)
    assert isinstance(moments(X, X.mean(axis=0)), RowMoments)
    assert rows.log_likelihood_ == pytest.approx(dense.log_likelihood_, rel=1e-6)
    em = FactorAnalysis(2, method="em").fit(X)
    assert em.log_likelihood_ == pytest.approx(dense.log_likelihood_, rel=1e-6)


def test_lanczos_and_full_eigenvectors_agree():
    X, _ = draws(500, 230, 3)
    s = moments(X, X.mean(axis=0))
    assert isinstance(s, DenseMoments)
    scale = 1.0 / np.sqrt(s.variance)
    values, vectors = s.top(scale, 3, None)
    exact = np.linalg.eigvalsh(s.matrix * scale[:, None] * scale)[-3:]
    np.testing.assert_allclose(values, exact, rtol=1e-10)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-10)


def test_varimax_turns_without_changing_the_model(wine):
    plain = FactorAnalysis(3).fit(wine)
    turned = FactorAnalysis(3, rotate="varimax").fit(wine)
    np.testing.assert_allclose(turned.get_covariance(), plain.get_covariance(), atol=1e-10)
    simplicity = lambda f: ((f**2).var(axis=1)).sum()  # noqa: E731
    best = simplicity(turned.components_)
    assert best > simplicity(plain.components_)
    rng = np.random.default_rng(0)
    for _ in range(20):
        q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        assert simplicity(q @ turned.components_) <= best + 1e-9
    np.testing.assert_allclose(varimax(turned.components_), turned.components_, atol=1e-4)


@pytest.mark.parametrize("criterion", ["bic", "held-out"])
def test_the_number_of_factors_is_found(criterion):
    X, _ = draws(600, 12, 3, seed=4)
    model = FactorAnalysis(criterion, max_components=5).fit(X)
    assert model.choice_.n_components == len(model.components_) == 3
    picked = choose_components(FactorAnalysis(), X, [1, 3], criterion=criterion)
    assert picked.n_components == 3
    assert FactorAnalysis(3).fit(X).bic(X) < FactorAnalysis(2).fit(X).bic(X)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_more_factors_are_tried_while_the_last_is_the_best(share):
    X, _ = draws(500, 7, 3, seed=4)
    X[np.random.default_rng(0).random(X.shape) < share] = np.nan
    choice = FactorAnalysis("bic").fit(X).choice_
    # a third of the features are two
    assert choice.candidates == (1, 2, 3, 4)
    assert choice.n_components == 3


def test_scale_and_shift_of_features_do_not_matter(wine):
    scale, shift = np.logspace(-3, 4, 13), np.linspace(-50, 900, 13)
    plain, moved = FactorAnalysis(2).fit(wine), FactorAnalysis(2).fit(wine * scale + shift)
    np.testing.assert_allclose(moved.components_ / scale, plain.components_, atol=1e-5)
    expected = plain.log_likelihood_ - len(wine) * np.log(scale).sum()
    assert moved.log_likelihood_ == pytest.approx(expected, rel=1e-9)


def test_bad_input_is_named(wine):
    with pytest.raises(ValueError, match="n_components must be an integer from 1 to 12"):
        FactorAnalysis(13).fit(wine)
    with pytest.raises(ValueError, match=r"constant in column\(s\) \[3\]"):
        FactorAnalysis(1).fit(np.where(np.arange(13) == 3, 7.0, wine))
    holes = np.where(np.arange(13) == 3, np.nan, wine)
    with pytest.raises(ValueError, match="method='em' fits them"):
        FactorAnalysis(1).fit(holes)
    with pytest.raises(ValueError, match=r"no observed entry in column\(s\) \[3\]"):
        FactorAnalysis(1, method="em").fit(holes)
    with pytest.raises(ValueError, match="infinity"):
        FactorAnalysis(1, method="em").fit(np.where(wine > 2, np.inf, wine))
    for option in ({"method": "svd"}, {"noise": "full"}, {"rotate": "promax"}, {"batch_size": 0}):
        with pytest.raises(ValueError, match=next(iter(option))):
            FactorAnalysis(1, **option).fit(wine)
    with pytest.raises(AttributeError, match="partial_fit"):
        FactorAnalysis(1).partial_fit(wine)
    with pytest.raises(ValueError, match="has no maximum"):
        FactorAnalysis(3).fit(wine[:4])


def test_save_and_load(tmp_path, wine):
    model = FactorAnalysis(2, rotate="varimax").fit(wine)
    model.save(tmp_path / "model.npz")
    again = FactorAnalysis.load(tmp_path / "model.npz")
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.transform(wine), model.transform(wine))
    assert again.log_likelihood_ == model.log_likelihood_


@pytest.mark.filterwarnings("ignore::latlin.factor.HeywoodWarning")
@parametrize_with_checks(
    [
        FactorAnalysis(method="em", tol=1e-3),
        FactorAnalysis(method="online-em"),
        FactorAnalysis(method="gradient"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", [BinaryFactorAnalysis, GroupFactorAnalysis, MixedFactorAnalysis, NoisyICA])
def test_numbers_whose_squares_overflow_are_refused(kind):
    X = 1e160 * np.random.default_rng(0).standard_normal((20, 3))
    with pytest.raises(ValueError, match=r"must hold numbers of at most 1e\+140 in size, got \d.*e\+160"):
        kind(1).fit(X)


@pytest.mark.filterwarnings("ignore::latlin.factor.HeywoodWarning")
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (BinaryFactorAnalysis(2, n_init=1, random_state=0, verbose=True), "binary factor analysis, starts"),
        (GroupFactorAnalysis(2, random_state=0, verbose=True), "group factor analysis, starts"),
        (MixedFactorAnalysis(1, random_state=0, max_iter=20, tol=1e-2, verbose=True), "mixed factor analysis, start"),
        (NoisyICA(2, n_init=1, tol=1e-2, random_state=0, verbose=True), "noisy ICA, starts"),
        (FactorAnalysis(1, verbose=True), "factor analysis (ml):   0%"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_bar_is_there_before_the_first_step(model, words, capsys):
    model.fit(np.random.default_rng(0).standard_normal((40, 3)))
    assert capsys.readouterr().err.lstrip().startswith(words)


def test_missing_cells_switch_a_choice_to_em_and_an_end_of_the_range_is_said():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 2)) @ rng.standard_normal((2, 8)) + 0.4 * rng.standard_normal((150, 8))
    X[rng.random(X.shape) < 0.05] = np.nan
    model = FactorAnalysis("bic", max_components=2).fit(X)
    assert model.choice_.n_components == 2
    assert "method='em' was used" in model.message_
    assert "raise max_components" in model.message_
    same = FactorAnalysis(2, method="em").fit(X)
    assert model.log_likelihood_ == pytest.approx(same.log_likelihood_)
    np.testing.assert_allclose(model.transform(X), same.transform(X))
    assert (
        "raise max_components" not in FactorAnalysis("bic", method="em", max_components=3, max_iter=300).fit(X).message_
    )


def test_batch_gradients_are_differences_and_their_ascent_meets_maximum_likelihood(wine):
    s = moments(wine, wine.mean(axis=0))
    rng = np.random.default_rng(0)
    f, psi = rng.standard_normal((wine.shape[1], 2)) * np.sqrt(s.variance)[:, None], 0.5 * s.variance
    priors = 0.8, (2.0, 0.3)
    value, by_loadings, by_log_noise = objective(s, f, psi, *priors)
    step = 1e-5
    for d, k in ((0, 0), (3, 1)):
        move = np.zeros_like(f)
        move[d, k] = step * np.sqrt(s.variance[d])
        up, down = (objective(s, f + sign * move, psi, *priors)[0] for sign in (1, -1))
        assert by_loadings[d, k] * move[d, k] == pytest.approx(0.5 * (up - down), rel=1e-5)
        turn = np.zeros_like(psi)
        turn[d] = step
        up, down = (objective(s, f, psi * np.exp(sign * turn), *priors)[0] for sign in (1, -1))
        assert by_log_noise[d] * step == pytest.approx(0.5 * (up - down), rel=1e-5)
    # every constant of the priors
    share = psi / s.variance
    by_scipy = norm(scale=0.8 * np.sqrt(s.variance)[:, None]).logpdf(f).sum()
    by_scipy += (invgamma(2.0, scale=0.3).logpdf(share) - np.log(s.variance)).sum()
    assert value - objective(s, f, psi, None, None)[0] == pytest.approx(by_scipy)
    ml, ascent = FactorAnalysis(2).fit(wine), FactorAnalysis(2, method="batch-gradient").fit(wine)
    assert ascent.log_likelihood_ == pytest.approx(ml.log_likelihood_, abs=1e-3)
    assert ascent.log_prior_ == 0.0
    np.testing.assert_allclose(ascent.noise_variance_, ml.noise_variance_, rtol=1e-2)
    flat = FactorAnalysis(2, method="batch-gradient", noise="isotropic").fit(wine)
    assert flat.log_likelihood_ == pytest.approx(
        FactorAnalysis(2, noise="isotropic").fit(wine).log_likelihood_, abs=1e-2
    )


def test_priors_shrink_loadings_and_keep_noise_off_zero():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((40, 1)) @ np.ones((1, 6)) + rng.standard_normal((40, 6))
    X[:, 0] = X[:, 1] + 1e-6 * rng.standard_normal(40)  # a Heywood case
    with pytest.warns(HeywoodWarning):
        FactorAnalysis(2, method="batch-gradient").fit(X)
    held = FactorAnalysis(2, method="batch-gradient", noise_prior=(3.0, 0.4)).fit(X)
    assert np.all(held.noise_variance_ > 0.02 * X.var(axis=0))
    assert held.trace_[-1] == pytest.approx(held.log_likelihood_ + held.log_prior_)
    assert held.score(X) * len(X) == pytest.approx(held.log_likelihood_)
    sizes = [
        np.linalg.norm(
            FactorAnalysis(1, method="batch-gradient", loading_prior=t, noise_prior=(3.0, 0.4)).fit(X).components_
        )
        for t in (100.0, 0.3, 0.1)
    ]
    assert sizes[0] > sizes[1] > sizes[2]
    # a smaller change of units changes nothing
    one = FactorAnalysis(1, method="batch-gradient", loading_prior=0.3, noise_prior=(3.0, 0.4))
    np.testing.assert_allclose(one.fit(10.0 * X).components_, 10.0 * clone(one).fit(X).components_, rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"loading_prior": 1.0}, "loading_prior is for method='batch-gradient'"),
        ({"method": "batch-gradient", "loading_prior": 0.0}, "loading_prior must be"),
        ({"method": "batch-gradient", "noise_prior": 2.0}, "must be a pair"),
        ({"method": "batch-gradient", "noise_prior": (2.0, -1.0)}, "noise_prior's scale must be"),
    ],
)
def test_bad_priors(wine, options, text):
    with pytest.raises(ValueError, match=text):
        FactorAnalysis(1, **options).fit(wine)


def test_features_that_are_one_line_have_next_to_no_noise():
    X = 1e9 + np.arange(36.0).reshape(12, 3)
    with pytest.warns(HeywoodWarning, match="went to its floor"):
        model = FactorAnalysis(1).fit(X)
    assert model.converged_
    assert np.all(model.noise_variance_ < 1e-5 * X.var(axis=0))
