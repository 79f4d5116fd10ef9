"""The estimator: scikit-learn's contract, finding clusters, every algorithm, streams, missing values, bad input."""

import numpy as np
import pytest
from scipy import integrate
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from latlin.mixture import BayesianGaussianMixture, sweep
from latlin.numerics.alerts import ConvergenceWarning, NumericalWarning

COVARIANCES = ["fixed", "spherical", "diagonal", "full", "tied"]


def seven_clusters(seed):
    """700 rows of 7 unit-covariance clusters at least 5 apart."""
    rng = np.random.default_rng(seed)
    centres: list[np.ndarray] = []
    while len(centres) < 7:
        candidate = rng.uniform(-15, 15, 2)
        if all(np.linalg.norm(candidate - other) >= 5 for other in centres):
            centres.append(candidate)
    labels = rng.integers(7, size=700)
    means = np.array(centres)
    truth = (np.bincount(labels, minlength=7) / 700, means)
    return means[labels] + rng.normal(size=(700, 2)), labels, truth


def two_clusters(seed=0, n=60, dim=2):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(-6, 1, (n, dim)), rng.normal(6, 1, (n, dim))])


@parametrize_with_checks(
    [
        # fifteen rows in thirty dimensions have several optima, and moves draw rows by their place
        BayesianGaussianMixture(2, covariance="diagonal", weight_prior="stick-breaking", split_merge=0, random_state=0),
        BayesianGaussianMixture(2, covariance="fixed", algorithm="gradient", n_init=1, max_iter=30, random_state=0),
    ]
)
@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def overlapping(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((150, 3)) * np.array([0.3, 1.0, 2.0])
    x[:60] = x[:60, [1, 2, 0]] + 3.0
    return x


@pytest.mark.parametrize("covariance", ["full", "tied", "diagonal", "spherical"])
def test_the_scale_of_the_prior_covariance_maximises_the_bound(covariance):
    x = overlapping()
    options = {"covariance": covariance, "n_init": 1, "split_merge": 0, "random_state": 0, "tol": 1e-8}
    learnt = BayesianGaussianMixture(3, **options).fit(x)
    scale, bounds = learnt.mixture_.components.prior_scale, []
    assert covariance != "full" or abs(np.log(learnt.covariance_prior_factor_)) > 0.02
    for factor in (0.8, 1.0, 1.25):
        given = BayesianGaussianMixture(3, covariance_prior=factor * scale, **options).fit(x)
        assert given.covariance_prior_factor_ == 1.0
        bounds.append(given.lower_bound_)
    assert learnt.lower_bound_ == pytest.approx(bounds[1], abs=1e-4)
    assert bounds[1] > max(bounds[0], bounds[2])
    assert np.diff(learnt.history_.bound).min() > -1e-8


@pytest.mark.parametrize("seed", range(3))
def test_more_starts_never_end_lower(seed):
    x = overlapping(seed)
    bounds = [BayesianGaussianMixture(6, n_init=n, random_state=seed).fit(x).lower_bound_ for n in (1, 2, 4, 8)]
    assert np.diff(bounds).min() >= 0.0


def test_superfluous_components_empty_in_at_least_18_of_20_data_sets():
    found = [
        BayesianGaussianMixture(10, covariance="fixed", random_state=seed).fit(seven_clusters(seed)[0]).n_active_
        for seed in range(20)
    ]
    assert sum(active == 7 for active in found) >= 18


def plug_in(mixture, x):
    """ln p(X | E[π], E[μ]) with unit covariance."""
    squares = ((x[:, None] - mixture.means_) ** 2).sum(axis=2)
    return np.log(np.exp(-0.5 * squares) @ mixture.weights_ / (2 * np.pi)).sum()


@pytest.mark.parametrize("algorithm", ["natural", "stochastic-natural", "gradient", "sgd", "score", "pathwise", "iwae"])
def test_every_algorithm_reaches_the_likelihood_of_coordinate_ascent(algorithm):
    x, _, truth = seven_clusters(0)
    same = {"covariance": "fixed", "random_state": 0}
    best = BayesianGaussianMixture(10, **same).fit(x)
    mixture = BayesianGaussianMixture(10, algorithm=algorithm, n_init=1, **same).fit(x, truth=truth)
    assert plug_in(mixture, x) > plug_in(best, x) - 0.01 * abs(plug_in(best, x))
    assert mixture.lower_bound_ <= best.lower_bound_ + 1e-6 * abs(best.lower_bound_)
    assert mixture.converged_
    assert len(mixture.trace_) == len(mixture.history_.seconds) == len(mixture.history_.iterations)
    error = mixture.history_.log_likelihood_error
    assert np.isfinite(error).all()
    squares = ((x[:, None] - truth[1]) ** 2).sum(axis=2)
    exact = np.log(np.exp(-0.5 * squares) @ truth[0] / (2 * np.pi)).sum()
    assert error[-1] == pytest.approx(exact - plug_in(mixture, x), abs=1e-6)


def test_importance_bound_lies_above_the_elbo():
    x, _, _ = seven_clusters(1)
    mixture = BayesianGaussianMixture(10, covariance="fixed", algorithm="iwae", n_init=1, random_state=0).fit(x)
    assert mixture.importance_bound_.value > mixture.lower_bound_ - 4 * mixture.importance_bound_.standard_error


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
def test_plain_score_gradients_do_not_converge():
    x, _, truth = seven_clusters(0)
    plain = BayesianGaussianMixture(
        10, covariance="fixed", algorithm="score", control_variate=None, n_init=1, max_iter=300, random_state=0
    ).fit(x, truth=truth)
    assert plain.history_.log_likelihood_error[-1] > 0.05 * abs(plug_in(plain, x))


@pytest.mark.parametrize("labels", ["exact", "gumbel"])
def test_relaxed_labels_are_an_option_of_the_pathwise_algorithm(labels):
    mixture = BayesianGaussianMixture(
        2, covariance="fixed", algorithm="pathwise", labels=labels, temperature=0.2, n_init=1, random_state=0
    ).fit(two_clusters())
    np.testing.assert_allclose(np.sort(mixture.means_[:, 0]), [-6, 6], atol=0.6)


@pytest.mark.parametrize("step", ["robbins-monro", "exponential", "constant", "adam"])
@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
def test_every_schedule_climbs(step):
    mixture = BayesianGaussianMixture(
        3, covariance="fixed", algorithm="gradient", step=step, n_init=1, max_iter=60, random_state=0
    ).fit(two_clusters())
    assert mixture.trace_[-1] > mixture.trace_[0]


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick-breaking"])
def test_clusters_are_found_with_every_prior(covariance, weight_prior):
    x = two_clusters()
    mixture = BayesianGaussianMixture(5, covariance=covariance, weight_prior=weight_prior, random_state=0).fit(x)
    assert mixture.n_active_ == 2
    assert adjusted_rand_score(np.repeat([0, 1], 60), mixture.predict(x)) == 1.0
    np.testing.assert_allclose(mixture.predict_proba(x).sum(axis=1), 1.0, rtol=1e-12)
    assert (np.diff(mixture.trace_) > -1e-9 * abs(mixture.lower_bound_)).all()


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_predictive_density_integrates_to_one_and_matches_its_draws(covariance):
    x = two_clusters(n=20, dim=1)
    mixture = BayesianGaussianMixture(3, covariance=covariance, random_state=0).fit(x)
    grid = np.linspace(-400, 400, 80_001)
    density = np.exp(mixture.score_samples(grid[:, None]))
    assert integrate.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)
    draws, labels = mixture.sample(20_000, random_state=1)
    inside = np.abs(grid) <= 5.0
    mass = integrate.trapezoid(density[inside], grid[inside])
    share = (np.abs(draws) < 5.0).mean()
    assert abs(share - mass) < 4 * np.sqrt(mass * (1 - mass) / 20_000) + 1e-4
    assert set(np.unique(labels)) <= {0, 1, 2}


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_missing_entries_are_integrated_out(covariance):
    x = two_clusters(1)
    holes = np.random.default_rng(2).random(x.shape) < 0.2
    holes[holes.all(axis=1)] = [False, True]
    broken = np.where(holes, np.nan, x)
    mixture = BayesianGaussianMixture(4, covariance=covariance, random_state=0).fit(broken)
    assert adjusted_rand_score(np.repeat([0, 1], 60), mixture.predict(broken)) == 1.0
    line = np.linspace(-300, 300, 30_001)
    rows = np.column_stack([np.full_like(line, 5.0), line])
    marginal = integrate.trapezoid(np.exp(mixture.score_samples(rows)), line)
    assert mixture.score_samples([[5.0, np.nan]])[0] == pytest.approx(np.log(marginal), abs=1e-3)


def test_weight_two_counts_as_two_rows():
    x = two_clusters(3)
    twice = np.random.default_rng(4).random(len(x)) < 0.5
    weighted = BayesianGaussianMixture(2, random_state=0).fit(x, sample_weight=1.0 + twice)
    repeated = BayesianGaussianMixture(2, random_state=0).fit(np.concatenate([x, x[twice]]))
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-6)


def test_split_and_merge_moves_leave_a_poor_optimum():
    x, labels, _ = seven_clusters(5)
    common = {"covariance": "full", "n_init": 1, "random_state": 3}
    stuck = BayesianGaussianMixture(8, split_merge=0, **common).fit(x)
    moved = BayesianGaussianMixture(8, split_merge=30, **common).fit(x)
    assert moved.lower_bound_ >= stuck.lower_bound_
    assert adjusted_rand_score(labels, moved.predict(x)) > 0.95


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_a_stream_comes_near_the_batch_fit(covariance):
    rng = np.random.default_rng(6)
    centres = np.array([[-8.0, 0.0], [0.0, 8.0], [8.0, 0.0]])
    x = (centres[rng.integers(3, size=6000)] + rng.normal(size=(6000, 2))).astype(np.float32)
    stream = BayesianGaussianMixture(3, covariance=covariance, random_state=0, batch_size=200)
    for block in np.split(x, 6):
        stream.partial_fit(block)
    batch = BayesianGaussianMixture(3, covariance=covariance, random_state=0).fit(x)
    order, other = np.argsort(stream.means_[:, 0]), np.argsort(batch.means_[:, 0])
    np.testing.assert_allclose(stream.means_[order], batch.means_[other], atol=0.2)
    assert stream.n_seen_ == 6000
    assert stream.bound_kind_ == "approximation"
    assert stream.lower_bound_ == pytest.approx(batch.lower_bound_, rel=0.05)


def test_result_does_not_depend_on_the_number_of_threads(monkeypatch):
    x = np.random.default_rng(7).normal(size=(3 * sweep.SLICE + 17, 2))
    fits = []
    for threads in (1, 3):
        monkeypatch.setattr(sweep, "thread_count", lambda threads=threads: threads)
        fits.append(BayesianGaussianMixture(2, n_init=1, split_merge=0, tol=1.0, random_state=0).fit(x))
    assert fits[0].lower_bound_ == fits[1].lower_bound_


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_duplicates_and_features_without_variance(covariance):
    x = np.column_stack([np.repeat([[0.0], [5.0], [9.0]], 40, axis=0), np.full(120, 3.0)])
    mixture = BayesianGaussianMixture(4, covariance=covariance, fixed_covariance=0.1, random_state=0).fit(x)
    assert np.isfinite(mixture.lower_bound_)
    assert adjusted_rand_score(np.repeat([0, 1, 2], 40), mixture.predict(x)) == 1.0
    same = BayesianGaussianMixture(2, covariance=covariance, random_state=0).fit(np.ones((12, 2)))
    assert np.isfinite(same.score_samples(np.ones((1, 2)))).all()


@pytest.mark.parametrize("covariance", ["fixed", "spherical", "diagonal", "full"])
@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.NumericalWarning")
def test_one_far_row_does_not_spoil_the_rest(covariance):
    x = np.vstack([two_clusters(), [[1e12, 1e12]]])
    mixture = BayesianGaussianMixture(4, covariance=covariance, random_state=0).fit(x)
    assert adjusted_rand_score(np.repeat([0, 1], 60), mixture.predict(x[:-1])) == 1.0
    assert np.isfinite(mixture.predict_proba(x)).all()


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.MonotonicityWarning")
def test_a_far_row_under_a_tied_covariance_is_reported():
    """Where rounding makes a matrix indefinite; nearer rows do no such harm."""
    x = np.vstack([two_clusters(), [[1e16, 1e16]]])
    with pytest.warns(NumericalWarning, match="far rows"):
        mixture = BayesianGaussianMixture(4, covariance="tied", random_state=0).fit(x)
    assert np.isfinite(mixture.lower_bound_)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_data_far_from_the_origin_keep_their_digits(covariance):
    x = np.round(two_clusters() * 2**20) / 2**20
    near = BayesianGaussianMixture(3, covariance=covariance, random_state=0).fit(x)
    far = BayesianGaussianMixture(3, covariance=covariance, random_state=0).fit(x + 2.0**20)
    assert far.lower_bound_ == pytest.approx(near.lower_bound_, abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 500}, "n_samples=120"),
        ({"covariance": "round"}, "covariance must be one of"),
        ({"algorithm": "magic"}, "algorithm must be one of"),
        ({"algorithm": "sgd"}, "covariance='fixed'"),
        ({"step": "huge", "algorithm": "natural"}, "step must be one of"),
        ({"step": "adam", "algorithm": "natural"}, "Euclidean"),
        ({"mean_precision": 0.0}, "mean_precision"),
        ({"weight_concentration": -1.0}, "weight_concentration"),
        ({"degrees_of_freedom": 0.5}, "degrees_of_freedom"),
        ({"covariance_prior": np.eye(3)}, "covariance_prior"),
        ({"covariance_prior": -1.0}, "covariance_prior"),
        ({"mean_prior": [1.0]}, "mean_prior"),
        ({"covariance": "fixed", "algorithm": "score", "n_draws": 1}, "n_draws"),
    ],
)
def test_bad_settings_get_a_sentence(changes, message):
    with pytest.raises(ValueError, match=message):
        BayesianGaussianMixture(**{"n_components": 2, **changes}).fit(two_clusters())


def test_bad_data_get_a_sentence():
    x = two_clusters()
    hollow = np.column_stack([x[:, 0], np.full(len(x), np.nan)])
    with pytest.raises(ValueError, match="feature 1 of X has no observed value"):
        BayesianGaussianMixture(2).fit(hollow)
    with pytest.raises(ValueError, match="sample_weight"):
        BayesianGaussianMixture(2).fit(x, sample_weight=-np.ones(len(x)))
    with pytest.raises(ValueError, match="truth"):
        BayesianGaussianMixture(2).fit(x, truth=(np.ones(2) / 2, np.zeros((2, 2))))
    x[3, 0] = np.nan
    with pytest.raises(ValueError, match="missing entries"):
        BayesianGaussianMixture(2).partial_fit(x)


def test_stopping_early_warns_with_a_remedy():
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        BayesianGaussianMixture(5, max_iter=1, split_merge=0, n_init=1).fit(two_clusters())


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.full(12, 1e-300), "sample_weight must add up to at least 2 rows, got 1.2e-299"),
        (np.full(12, 0.1), "sample_weight must add up to at least 2 rows, got 1.2"),
        ("a", "sample_weight must hold numbers"),
        (np.array([1.0] * 11 + [10**400], dtype=object), "sample_weight must hold numbers"),
        (object(), "sample_weight must hold numbers"),
    ],
    ids=["tiny", "too few", "a text", "too large an integer", "an object"],
)
def test_weights_that_are_no_counts_of_rows_are_named(weights, words):
    X = np.random.default_rng(0).standard_normal((12, 3))
    with pytest.raises(ValueError, match=words):
        BayesianGaussianMixture(2).fit(X, sample_weight=weights)
