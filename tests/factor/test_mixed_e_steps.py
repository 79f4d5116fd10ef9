"""E-steps of mixed factor analysis by name, and latents whose shape is learnt."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import t as student

from latlin.factor import MixedFactorAnalysis
from latlin.factor.mixed.fit import MixedState, fit_df, infer_new_rows, make_engine, unit_student_t
from latlin.factor.mixed.sites import ColumnSites, local_expectation
from latlin.potentials import Gaussian, Logit

SITES = ColumnSites(
    ("gaussian", "logit", "logit"),
    np.array([[1.0, 0.5], [1.5, -1.0], [0.3, 2.0]]),
    np.array([0.1, 0.0, -0.4]),
    ({"scale": 0.6}, {}, {}),
)
ROWS = np.array([[0.4, 1.0, 0.0], [-1.0, 0.0, np.nan], [2.0, 1.0, 1.0]])


def log_evidence(row, density):
    """On a fine grid of both latents."""
    w = np.linspace(-12.0, 12.0, 801)
    grid = np.stack(np.meshgrid(w, w, indexing="ij"), axis=-1).reshape(-1, 2)
    eta = grid @ SITES.loading.T + SITES.intercept
    total = density.log_density(grid).sum(axis=1)
    for j in np.flatnonzero(~np.isnan(row)):
        total += SITES.potential(j, np.full(len(grid), row[j])).log_density(eta[:, j])
    return np.log(np.sum(np.exp(total - total.max()))) + total.max() + 2.0 * np.log(w[1] - w[0])


@pytest.mark.parametrize("density", [Gaussian(0.0, 1.0), unit_student_t(4.0)], ids=["gaussian", "student-t"])
def test_bounds_are_ordered(density):
    values = {name: infer_new_rows(make_engine(name, density), ROWS, SITES)[2] for name in ("gkl", "mean-field", "lvb")}
    exact = np.array([log_evidence(row, density) for row in ROWS])
    assert np.all(values["gkl"] <= exact + 1e-9)
    assert np.all(values["mean-field"] <= values["gkl"] + 1e-9)
    assert np.all(values["lvb"] <= values["gkl"] + 1e-9)
    assert np.all(values["mean-field"] > exact - 0.5)
    assert np.all(values["lvb"] > exact - 0.3)


def test_mean_field_latents_are_independent_and_at_their_best():
    density = Gaussian(0.0, 1.0)
    means, covs, values = infer_new_rows(make_engine("mean-field", density), ROWS, SITES)
    assert np.all(covs[:, 0, 1] == 0.0)
    engine = make_engine("mean-field", density)
    for shift in (np.array([0.05, 0.0]), np.array([0.0, -0.05])):
        moved = engine.infer(ROWS, SITES, means + shift, covs.copy(), 0, 0.0)
        assert np.all(moved < values)
    wider = engine.infer(ROWS, SITES, means.copy(), 1.2 * covs, 0, 0.0)
    assert np.all(wider < values)


def test_local_expectations_touch_and_have_their_slopes():
    m, v, site = np.array([-0.7, 0.0, 2.0]), np.array([0.5, 1e-9, 3.0]), Logit(np.array([1, 0, 1]))
    found = local_expectation(site, m, v)
    exact = site.expected_log(m, v)
    assert np.all(found.value <= exact.value + 1e-12)
    assert found.value[1] == pytest.approx(exact.value[1], abs=1e-6)
    for change, slope in ((np.array([1e-5, 0.0]), found.d_mean), (np.array([0.0, 1e-5]), found.d_var)):
        up = local_expectation(site, m + change[0], v + change[1])
        down = local_expectation(site, m - change[0], np.maximum(v - change[1], 0.0))
        wide = np.array([True, False, True])
        np.testing.assert_allclose(((up.value - down.value) / 2e-5)[wide], slope[wide], rtol=1e-5)


def test_degrees_of_freedom_are_those_of_the_latents():
    rng = np.random.default_rng(0)
    means = unit_student_t(4.0).sample(np.zeros((6000, 1)), rng)
    found = fit_df(MixedState(means, np.full((6000, 1, 1), 1e-8), SITES, df=30.0))
    assert 3.4 < found < 4.7


def table(seed, n=250):
    rng = np.random.default_rng(seed)
    w = unit_student_t(3.0).sample(np.zeros((n, 2)), rng)
    eta = w @ np.array([[2.0, 0.0, 1.5, 0.2, 2.0, 0.5], [0.0, 2.0, 0.1, 1.5, 0.5, 2.0]])
    X = eta + 0.3 * rng.standard_normal(eta.shape)
    X[:, 5] = X[:, 5] > 0.0
    return X


@pytest.mark.parametrize("engine", ["mean-field", "lvb"])
def test_fits_rise_by_every_engine(engine):
    model = MixedFactorAnalysis(2, types=["real"] * 5 + ["binary"], engine=engine, max_iter=200).fit(table(0))
    assert model.evidence_kind_ == "lower bound"
    assert np.diff(model.trace_).min() > -1e-7 * abs(model.trace_[-1])


def test_a_learnt_shape_is_heavy_and_raises_the_bound():
    X, options = table(1), {"types": ["real"] * 5 + ["binary"], "latents": "student-t", "max_iter": 300}
    learnt = MixedFactorAnalysis(2, df="auto", **options).fit(X)
    light = MixedFactorAnalysis(2, df=30.0, **options).fit(X)
    assert 2.0 < learnt.df_ < 6.0
    assert light.df_ == 30.0
    assert learnt.lower_bound_ > light.lower_bound_ + 1.0
    assert np.diff(learnt.trace_).min() > -1e-7 * abs(learnt.trace_[-1])


@pytest.mark.parametrize("latents", ["student-t", "laplace"])
def test_a_fit_goes_on_while_the_noise_falls(latents):
    """Loadings that hardly move at first do not end it: against the likelihood of the truth, on a grid."""
    loading = np.array([1.0, 0.8, -1.2, 0.6])
    w = np.random.default_rng(1).standard_t(3, (300, 1))
    X = w * loading + 0.3 * np.random.default_rng(11).standard_normal((300, 4))
    z = np.sinh(np.linspace(-8.0, 8.0, 2001))
    log_weight = np.log(np.cosh(np.arcsinh(z)) * 16.0 / 2000) + student(3).logpdf(z)
    away = X[:, None] - z[:, None] * loading
    truth = logsumexp(log_weight - 0.5 * (away**2).sum(axis=2) / 0.09, axis=1) - 4.0 * np.log(
        0.3 * np.sqrt(2.0 * np.pi)
    )
    model = MixedFactorAnalysis(1, types=["real"] * 4, latents=latents, random_state=0).fit(X)
    assert model.converged_
    assert model.lower_bound_ > truth.sum() - 20.0
    np.testing.assert_allclose(model.noise_variance_, 0.09, rtol=0.3)


def test_nodes_have_the_evidence_and_the_moments_of_a_grid():
    density = Gaussian(0.0, 1.0)
    means, covs, values = infer_new_rows(make_engine("quadrature", density), ROWS, SITES)
    exact = np.array([log_evidence(row, density) for row in ROWS])
    np.testing.assert_allclose(values, exact, atol=2e-6)
    # ∂ log p(x)/∂b of the first column is ⟨x − η⟩/scale²
    step = 1e-5
    moved = [SITES._replace(intercept=SITES.intercept + np.array([side, 0.0, 0.0])) for side in (-step, step)]
    low, high = (infer_new_rows(make_engine("quadrature", density), ROWS, sites)[2] for sites in moved)
    expected = (ROWS[:, 0] - SITES.intercept[0] - means @ SITES.loading[0]) / 0.36
    np.testing.assert_allclose((high - low) / (2.0 * step), expected, atol=1e-4)
    gaussian = infer_new_rows(make_engine("gkl", density), ROWS, SITES)[1]
    # this Gaussian is too narrow
    assert np.all(np.trace(covs, axis1=1, axis2=2) > np.trace(gaussian, axis1=1, axis2=2))


def test_nodes_climb_the_likelihood_of_an_item_response_table():
    """Loadings and intercepts against a search, with integrals on a grid; a Gaussian shrinks the loadings."""
    rng = np.random.default_rng(1)
    eta = np.outer(rng.standard_normal(200), [1.5, 2.0, 1.2, 2.5]) + np.array([0.5, -0.5, 0.0, 1.0])
    table = (rng.random(eta.shape) < expit(eta)).astype(float)
    grid = np.linspace(-8.0, 8.0, 161)
    log_prior = -0.5 * grid**2 - logsumexp(-0.5 * grid**2)

    def loss(t):
        logits = np.outer(grid, t[:4]) + t[4:]
        rows = table @ log_expit(logits).T + (1.0 - table) @ log_expit(-logits).T + log_prior
        return -logsumexp(rows, axis=1).sum() + 0.5 * t[:4] @ t[:4]

    best = minimize(loss, np.repeat([1.0, 0.0], 4), method="BFGS", options={"gtol": 1e-4}).x
    found = {
        name: MixedFactorAnalysis(1, types=["binary"] * 4, engine=name, tol=1e-5, max_iter=300, random_state=0).fit(
            table
        )
        for name in ("quadrature", "gkl")
    }
    exact, gaussian = (np.abs(found[name].components_[0]) for name in ("quadrature", "gkl"))
    np.testing.assert_allclose(exact, best[:4], rtol=2e-3)
    np.testing.assert_allclose(found["quadrature"].intercepts_, best[4:], atol=2e-3)
    assert found["quadrature"].lower_bound_ == pytest.approx(-loss(best) + 0.5 * best[:4] @ best[:4], abs=1e-2)
    assert np.all(gaussian < 0.99 * best[:4])


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
def test_nodes_of_real_columns_take_the_steps_of_gaussians():
    """Their posteriors are Gaussians, so that every step is the same."""
    X, options = table(2)[:60, :5], {"types": ["real"] * 5, "max_iter": 6, "random_state": 0}
    nodes, gaussian = (MixedFactorAnalysis(2, engine=name, **options).fit(X) for name in ("quadrature", "gkl"))
    assert nodes.lower_bound_ == pytest.approx(gaussian.lower_bound_, abs=1e-6)
    np.testing.assert_allclose(nodes.components_, gaussian.components_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(nodes.noise_variance_, gaussian.noise_variance_, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"engine": "lvb", "types": ["count", "real"]}, "engine 'lvb' needs"),
        ({"df": 1.0}, "df"),
        ({"df": "few"}, "df"),
        ({"engine": "quadrature", "n_components": 4}, "engine 'quadrature' takes at most 3 components, got 4"),
        ({"engine": "quadrature", "latents": "laplace"}, "does not go with these latents"),
    ],
)
def test_bad_input_gets_a_sentence(options, match):
    with pytest.raises(ValueError, match=match):
        MixedFactorAnalysis(**{"n_components": 1, **options}).fit(np.array([[1.0, 0.5], [3.0, 1.0], [0.0, 0.2]]))
