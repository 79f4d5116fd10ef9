"""Inducing points: exact with all of them, a bound with fewer, gradients by differences, blocks as memory."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

import latlin
from gp_problems import inputs, targets
from latlin import engines, potentials
from latlin.distributed.blocks import LocalBlocks
from latlin.gp import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    Inducing,
    alternation,
    inducing,
    inducing_model,
    placement,
)
from latlin.gp.alternation import alternate, sole_sites
from latlin.gp.inducing_gradient import gradient_of
from latlin.gp.placement import place_inputs
from latlin.gp.search import Journal
from latlin.gp.setting import Likelihood, Setting
from latlin.gp.training import sample_rows
from latlin.inference.forms.sums import SumForm
from latlin.numerics.linalg import cholesky

ROUGH = ConstantKernel(1.5) * Matern([1.0, 1.6], nu=1.5)
NOISES = {
    "gaussian": potentials.Gaussian(0.0, 0.3),
    "logit": potentials.Logit(1.0),
    "poisson": potentials.Poisson(0),
    "student-t": potentials.StudentT(4.0, 0.0, 0.4),
}


def observed(name, X, seed=0):
    rng = np.random.default_rng(seed)
    f = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]
    if name == "logit":
        return (rng.random(len(X)) < 1.0 / (1.0 + np.exp(-3.0 * f))).astype(float)
    return rng.poisson(np.exp(f)).astype(float) if name == "poisson" else f + 0.3 * rng.standard_normal(len(X))


def alternated(model, *arguments):
    return alternate(model, sole_sites(model), *arguments)


def fitter_of(name, X, y, Z, **engine):
    chosen = engines.Exact() if name == "gaussian" else engines.GaussianKL(**({"tol": 1e-9} | engine))
    rng = np.random.default_rng(0)
    setting = Setting(ROUGH, Likelihood.of(NOISES[name]), 0.2, 1.3)
    return setting, Inducing(inputs=Z).prepare(setting, X, y, chosen, rng)


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "student-t"])
def test_all_points_give_the_exact_process(likelihood):
    X = inputs(40)
    y = targets(likelihood, X)
    options = {"kernel": ROUGH, "likelihood": likelihood, "optimizer": None}
    exact = GaussianProcessRegressor(approximation="exact", **options).fit(X, y)
    ours = GaussianProcessRegressor(approximation=Inducing(inputs=X), **options).fit(X, y)
    assert ours.log_evidence_ == pytest.approx(exact.log_evidence_, abs=1e-6)
    assert ours.evidence_kind_ == "lower bound"
    new = inputs(9, seed=5)
    for mine, theirs in zip(
        ours.predict_latent(new, return_cov=True), exact.predict_latent(new, return_cov=True), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
    np.testing.assert_allclose(
        ours.predict_latent(new, return_std=True)[1], exact.predict_latent(new, return_std=True)[1], atol=1e-6
    )
    np.testing.assert_allclose(ours.leave_one_out(), exact.leave_one_out(), atol=1e-5)
    theirs, mine = (model.log_marginal_likelihood(eval_gradient=True)[1] for model in (exact, ours))
    np.testing.assert_allclose(mine, theirs, atol=1e-4)


@pytest.mark.parametrize("name", ["gaussian", "logit", "student-t"])
def test_bounds_rise_with_nested_points_and_stay_below_the_exact_one(name):
    X = np.random.default_rng(0).uniform(-2, 2, (150, 2))
    y = observed(name, X)
    order = place_inputs(
        "conditional-variance", Setting(ROUGH, Likelihood.of(NOISES[name])), X, 150, np.random.default_rng(0)
    )
    bounds = []
    for count in (5, 15, 45, 150):
        setting, fitter = fitter_of(name, X, y, order[:count])
        bounds.append(fitter.fit(setting).posterior.log_evidence)
    assert np.all(np.diff(bounds) > 0.0)
    exact = latlin.gp.Dense().prepare(setting, X, y, fitter.engine, np.random.default_rng(0)).fit(setting)
    assert bounds[-1] == pytest.approx(exact.posterior.log_evidence, abs=1e-5)
    assert bounds[-2] < exact.posterior.log_evidence


def test_the_bound_of_gaussian_noise_is_that_of_titsias():
    """log N(y | μ, Q + σ²I) − Σ v_n/2σ², Q = K_fu K_uu⁻¹ K_uf and v the diagonal of K − Q (Titsias, 2009, eq. 9)."""
    X = np.random.default_rng(0).uniform(-2, 2, (60, 2))
    y, Z = observed("gaussian", X), X[:9] + 0.05
    setting, fitter = fitter_of("gaussian", X, y, Z)
    K, C, U = (1.3**2 * each for each in (ROUGH(X), ROUGH(X, Z), ROUGH(Z)))
    Q = C @ np.linalg.solve(U, C.T)
    fit = multivariate_normal(np.full(60, 0.2), Q + 0.3**2 * np.eye(60)).logpdf(y)
    expected = fit - np.trace(K - Q) / (2.0 * 0.3**2)
    assert fitter.fit(setting).posterior.log_evidence == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", list(NOISES))
def test_the_gradient_is_that_of_differences(name):
    """In kernel, likelihood and inducing inputs, re-optimised at every step."""
    X = np.random.default_rng(0).uniform(-2, 2, (60, 2))
    y = observed(name, X)
    Z = X[:7] + 0.05
    setting, fitter = fitter_of(name, X, y, Z)

    def bound(theta, Z):
        return (
            Inducing(inputs=Z)
            .prepare(setting, X, y, fitter.engine, np.random.default_rng(0))
            .fit(setting.at(theta))
            .posterior.log_evidence
        )

    by_theta, by_inputs, _ = gradient_of(fitter.fit(setting))
    assert len(by_theta) == len(setting.theta)
    h = 1e-4
    for j in range(len(by_theta)):
        step = h * np.eye(len(by_theta))[j]
        slope = (bound(setting.theta + step, Z) - bound(setting.theta - step, Z)) / (2 * h)
        assert by_theta[j] == pytest.approx(slope, rel=1e-5, abs=1e-5)
    for m, d in [(0, 0), (3, 1)]:
        step = np.zeros_like(Z)
        step[m, d] = h
        slope = (bound(setting.theta, Z + step) - bound(setting.theta, Z - step)) / (2 * h)
        assert by_inputs[m, d] == pytest.approx(slope, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["gaussian", "logit"])
def test_blocks_give_what_memory_gives(name, monkeypatch):
    X = np.random.default_rng(0).uniform(-2, 2, (300, 2))
    y = observed(name, X)
    setting, held = fitter_of(name, X, y, X[:12])
    here = held.fit(setting)
    monkeypatch.setattr(inducing_model, "HELD", 0)
    there = Inducing(inputs=X[:12]).prepare(
        setting, LocalBlocks.of(X, y, rows=70), None, held.engine, np.random.default_rng(0)
    )
    far = there.fit(setting)
    assert far.posterior.log_evidence == pytest.approx(here.posterior.log_evidence, abs=1e-8)
    np.testing.assert_allclose(far.marginals(X[:5]), here.marginals(X[:5]), atol=1e-6)
    np.testing.assert_allclose(there.gradient(far), held.gradient(here), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(far.leave_one_out(), here.leave_one_out(), atol=1e-6)


def test_a_warm_start_needs_fewer_passes(monkeypatch):
    """From the stand-ins at a neighbouring kernel, and from the function at other inducing inputs."""
    passes, plain = [0], SumForm.expectation

    def counted(form, *arguments, **options):
        passes[0] += 1
        return plain(form, *arguments, **options)

    def cost(fitter, setting, start=None):
        passes[0] = 0
        return fitter.fit(setting, start).posterior.log_evidence, passes[0]

    monkeypatch.setattr(SumForm, "expectation", counted)
    X = np.random.default_rng(0).uniform(-2, 2, (2000, 2))
    y = observed("logit", X)
    setting, fitter = fitter_of("logit", X, y, X[:20], tol=1e-5)
    first, _ = fitter.fit_with_gradient(setting)
    near = setting.at(setting.theta + 0.05)
    other = Inducing(inputs=X[20:45]).prepare(setting, X, y, fitter.engine, np.random.default_rng(0))
    for there, at in ((fitter, near), (other, setting)):
        cold, many = cost(there, at)
        warm, few = cost(there, at, first)
        assert warm == pytest.approx(cold, abs=1e-6)
        assert few < many


def test_leaving_one_out_is_a_fit_without_the_row():
    """Exactly so for Gaussian noise, also where the inducing points leave much out."""
    X = np.random.default_rng(0).uniform(-2, 2, (30, 2))
    y = observed("gaussian", X)
    setting, fitter = fitter_of("gaussian", X, y, X[:4])
    found = fitter.fit(setting).leave_one_out()
    for n in (0, 7, 29):
        others = np.arange(30) != n
        _, without = fitter_of("gaussian", X[others], y[others], X[:4])
        means, variances = without.fit(setting).marginals(X[n : n + 1])
        expected = norm.logpdf(y[n], means[0], np.sqrt(variances[0] + 0.3**2))
        assert found[n] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("held", [0, 2**26])
def test_a_start_for_more_rows_counts_them(held, monkeypatch):
    """Twice the rows have twice the precision beyond the prior's, and twice the pull."""
    X = np.random.default_rng(0).uniform(-2, 2, (200, 2))
    setting, fitter = fitter_of("logit", X, observed("logit", X), X[:6])
    latent = fitter.fit(setting)
    twice = Inducing(inputs=X[:6]).prepare(
        setting, np.tile(X, (2, 1)), np.tile(observed("logit", X), 2), fitter.engine, np.random.default_rng(0)
    )
    monkeypatch.setattr(inducing_model, "HELD", held)
    start = latent.start_at(latent.basis, twice.rows, inducing_model.model_of(latent.basis, twice.rows))
    before, after = (np.linalg.inv(each.covariance()) for each in (latent.posterior, start))
    np.testing.assert_allclose(after, np.eye(6) + 2.0 * (before - np.eye(6)), rtol=1e-6)
    np.testing.assert_allclose(after @ start.mean, 2.0 * before @ latent.posterior.mean, rtol=1e-6)


@pytest.mark.parametrize("name", ["logit", "poisson"])
def test_alternation_ends_at_the_optimum_of_the_engine(name):
    X = np.random.default_rng(0).uniform(-2, 2, (400, 2))
    y = observed(name, X)
    setting, fitter = fitter_of(name, X, y, X[:12])
    whole = fitter.fit(setting).posterior
    away = cholesky(1.5 * np.linalg.inv(whole.covariance()))
    found = alternated(whole.model, 0.7 * whole.mean, away, 1e-7)
    assert found.converged
    assert 1 < found.n_iter < 12
    assert np.all(np.diff(found.trace) >= -1e-9)
    assert found.log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)
    np.testing.assert_allclose(found.mean, whole.mean, atol=1e-6)
    np.testing.assert_allclose(found.covariance(), whole.covariance(), atol=1e-7)
    for mine, theirs in zip(found.sites, whole.sites, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
    again = alternated(whole.model, found.mean, found.density.structure.precision, 1e-3)
    assert again.n_iter == 1


@pytest.mark.parametrize("name", ["logit", "poisson"])
def test_what_the_bound_may_gain_yet_is_not_less_than_what_it_gains(name):
    """The estimate of the module, from γ that are off by up to a tenth, against the optimum."""
    X = np.random.default_rng(0).uniform(-2, 2, (400, 2))
    setting, fitter = fitter_of(name, X, observed(name, X), X[:12])
    whole = fitter.fit(setting).posterior
    rows, rng = whole.model.sites[0].H, np.random.default_rng(1)
    for off in (0.1, 0.02):
        gamma = whole.sites.gamma * rng.uniform(1 - off, 1 + off, 400)
        precision = cholesky(np.eye(12) + rows.T @ (gamma[:, None] * rows))
        ended = [alternated(whole.model, whole.mean, precision, 0.0, gap, gamma) for gap in (1.0, 1e-2, 1e-4, 1e-6)]
        for gap, found in zip((1.0, 1e-2, 1e-4, 1e-6), ended, strict=True):
            assert -1e-9 < whole.log_evidence - found.log_evidence < gap
            assert f"within {gap:.1e} of the optimum" in found.message
        assert ended[0].n_iter == 1 < ended[-1].n_iter


@pytest.mark.parametrize("name", ["logit", "poisson"])
def test_a_start_from_a_tenth_of_the_rows_needs_one_covariance_of_all(name, monkeypatch):
    """The mean is brought near that of all rows first, so that their first covariance is within the gap."""
    monkeypatch.setattr(alternation, "PROBES", 5)
    X = np.random.default_rng(0).uniform(-2, 2, (4000, 2))
    y = observed(name, X)
    setting, fitter = fitter_of(name, X[:400], y[:400], X[:12])
    some = fitter.fit(setting).posterior
    _, rest = fitter_of(name, X, y, X[:12])
    whole = rest.fit(setting).posterior
    ten = cholesky(np.eye(12) + 10.0 * (np.linalg.inv(some.covariance()) - np.eye(12)))
    found = alternated(whole.model, some.mean, ten, 0.0, 0.03)
    assert found.n_iter == 1
    assert -1e-9 < whole.log_evidence - found.log_evidence < 0.03
    # a start that says too little in some directions is enough too
    flat = cholesky(np.diag(np.where(np.arange(12) % 3, 1.0, 1e3)))
    found = alternated(whole.model, np.zeros(12), flat, 0.0, 0.03)
    assert -1e-9 < whole.log_evidence - found.log_evidence < 0.03


def test_too_small_a_curvature_is_noticed():
    X = np.random.default_rng(0).uniform(-2, 2, (400, 2))
    setting, fitter = fitter_of("logit", X, observed("logit", X), X[:12])
    whole = fitter.fit(setting).posterior
    # with far too small a curvature the means go astray, which is noticed
    assert (
        alternate(
            whole.model, sole_sites(whole.model), np.zeros(12), cholesky(0.01 * np.eye(12)), 1e-7, 0.0, np.ones(400)
        )
        is None
    )
    # one that is not said to belong to the sites is replaced by theirs first
    tenth = cholesky(np.eye(12) + 0.1 * (np.linalg.inv(whole.covariance()) - np.eye(12)))
    assert alternated(whole.model, np.zeros(12), tenth, 1e-7, 0.0, 0.1 * whole.sites.gamma) is None
    assert alternated(whole.model, np.zeros(12), tenth, 1e-7).log_evidence == pytest.approx(
        whole.log_evidence, abs=1e-9
    )


def test_learning_comes_near_the_exact_process():
    X = np.random.default_rng(0).uniform(-2, 2, (600, 2))
    y = observed("gaussian", X)
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0])
    exact = GaussianProcessRegressor(kernel, approximation="exact", hyperparameters="maximise").fit(X, y)
    ours = GaussianProcessRegressor(kernel, approximation="inducing", hyperparameters="maximise").fit(X, y)
    assert ours.log_evidence_ < exact.log_marginal_likelihood(ours.theta_) + 1e-9
    assert ours.log_evidence_ == pytest.approx(exact.log_evidence_, abs=0.5)
    np.testing.assert_allclose(ours.theta_, exact.theta_, atol=0.05)
    new = np.random.default_rng(1).uniform(-2, 2, (200, 2))
    np.testing.assert_allclose(ours.predict(new), exact.predict(new), atol=0.02)
    assert "inducing points" in ours.message_


def test_auto_says_what_it_took():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (2300, 1))
    y = np.sin(X[:, 0]) + 0.2 * rng.standard_normal(2300)
    model = GaussianProcessRegressor(max_iter=20).fit(X, y)
    assert model.approximation_.name == "inducing"
    assert "2300 rows are more than 2000" in model.message_
    assert "gained less than 0.1 each" in model.message_ or "explain all rows" in model.message_
    assert np.abs(model.predict(X[:50]) - np.sin(X[:50, 0])).max() < 0.1
    small = GaussianProcessRegressor(optimizer=None).fit(X[:50], y[:50])
    assert small.approximation_.name == "exact"
    assert "approximation 'exact', as 50 rows are not more than 2000" in small.message_


def test_points_stop_growing_where_they_gain_little():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 60, (1500, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.2 * rng.standard_normal(1500)
    options = {"kernel": ConstantKernel(1.0) * Matern(1.0, nu=1.5), "hyperparameters": "maximise"}
    model = GaussianProcessRegressor(approximation="inducing", **options).fit(X, y)
    fitter = model.process_.fitter
    assert len(fitter.Z) > 200
    assert model.log_evidence_ - fitter.before[1] < 0.1 * (len(fitter.Z) - fitter.before[0]) or len(fitter.Z) == 800


def test_moved_inputs_raise_the_bound():
    X = np.random.default_rng(0).uniform(-2, 2, (400, 2))
    y = observed("gaussian", X)
    bounds = [
        GaussianProcessRegressor(ROUGH, approximation=Inducing(10, "k-means++", moves), optimizer=None, random_state=0)
        .fit(X, y)
        .log_evidence_
        for moves in (0, 10)
    ]
    assert bounds[1] > bounds[0] + 1.0


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t"])
def test_a_saved_process_answers_the_same(likelihood, tmp_path):
    X = np.random.default_rng(0).uniform(-2, 2, (200, 2))
    y = observed("gaussian", X)
    gp = GaussianProcessRegressor(
        ROUGH, likelihood=likelihood, approximation=Inducing(15), max_iter=3, fixed_likelihood=("scale",)
    )
    with pytest.warns(latlin.ConvergenceWarning):
        gp.fit(X, y)
    gp.save(tmp_path / "gp.npz")
    again = latlin.load(tmp_path / "gp.npz")
    for ours, theirs in zip(again.predict(X[:5], return_std=True), gp.predict(X[:5], return_std=True), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    np.testing.assert_allclose(again.leave_one_out(), gp.leave_one_out(), atol=1e-8)
    assert again.message_ == gp.message_
    assert again.approximation_.n_inducing == 15
    np.testing.assert_allclose(
        again.log_marginal_likelihood(eval_gradient=True)[1],
        gp.log_marginal_likelihood(eval_gradient=True)[1],
        atol=1e-6,
    )
    assert again.posterior_.diagnose(random_state=0).verdict in {"accurate", "rough"}


def test_classes_are_one_against_the_rest(tmp_path):
    X = np.random.default_rng(0).uniform(-2, 2, (300, 2))
    y = np.array(["low", "mid", "high"])[np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.7, 0.7])]
    gp = GaussianProcessClassifier(ROUGH, approximation=Inducing(20), optimizer=None, multi_class="one-vs-rest").fit(
        X, y
    )
    assert gp.score(X, y) > 0.9
    assert gp.evidence_kind_ == "lower bound"
    np.testing.assert_allclose(gp.predict_proba(X[:9]).sum(axis=1), 1.0)
    gp.save(tmp_path / "gp.npz")
    np.testing.assert_allclose(latlin.load(tmp_path / "gp.npz").predict_proba(X), gp.predict_proba(X), atol=1e-10)


def test_white_noise_stays_a_bound():
    X = inputs(30)
    y = targets("gaussian", X)
    kernel = ROUGH + WhiteKernel(0.1)
    options = {"kernel": kernel, "optimizer": None}
    exact = GaussianProcessRegressor(approximation="exact", **options).fit(X, y)
    ours = GaussianProcessRegressor(approximation=Inducing(inputs=X), **options).fit(X, y)
    assert ours.log_evidence_ < exact.log_evidence_


def test_a_diagonal_covariance_is_a_lower_bound_still():
    X = np.random.default_rng(0).uniform(-2, 2, (200, 2))
    y = observed("logit", X)
    bounds = []
    for covariance in ("diagonal", "full"):
        setting, fitter = fitter_of("logit", X, y, X[:10], covariance=covariance, tol=1e-7)
        bounds.append(fitter.fit(setting).posterior.log_evidence)
    assert bounds[0] < bounds[1]


def test_samples_of_rows_are_rows():
    X = np.arange(100.0)[:, None]
    sample = sample_rows(LocalBlocks.of(X, X[:, 0] ** 2, rows=30), 20, 0)
    assert abs(len(sample.whole.X) - 20) <= 3
    np.testing.assert_array_equal(sample.whole.y, sample.whole.X[:, 0] ** 2)
    assert len(np.unique(sample.whole.X)) == len(sample.whole.X)


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="n_inducing"):
        Inducing(n_inducing=0)
    with pytest.raises(ValueError, match="inputs must be one of 'conditional-variance', 'k-means\\+\\+'"):
        Inducing(inputs="random")
    X = inputs(20)
    with pytest.raises(ValueError, match=r"inputs must be an array of shape \(M, 2\), got shape \(3, 5\)"):
        GaussianProcessRegressor(approximation=Inducing(inputs=np.zeros((3, 5)))).fit(X, targets("gaussian", X))
    with pytest.raises(ValueError, match="inducing points need engine 'gkl' or 'exact', got 'ep'"):
        GaussianProcessRegressor(approximation="inducing", engine="ep").fit(X, targets("gaussian", X))
    with pytest.raises(ValueError, match="approximation must be one of 'auto', 'exact'"):
        GaussianProcessRegressor(approximation="nystroem").fit(X, targets("gaussian", X))


def test_estimators_take_blocks_of_rows(tmp_path):
    """As blocks, and as a Dask collection; labels are compared where they are."""
    da = pytest.importorskip("dask.array")
    X = np.random.default_rng(0).uniform(-2, 2, (900, 2))
    y = np.where(observed("logit", X) > 0, "yes", "no")
    options = {"kernel": ROUGH, "approximation": Inducing(inputs=X[:15]), "optimizer": None, "random_state": 0}
    held = GaussianProcessClassifier(**options).fit(X, y)
    for rows in (
        (LocalBlocks.of(X, y, rows=250),),
        (da.from_array(X, chunks=(250, -1)), da.from_array(y, chunks=250)),
    ):
        there = GaussianProcessClassifier(**options).fit(*rows)
        assert list(there.classes_) == ["no", "yes"]
        assert there.log_evidence_ == pytest.approx(held.log_evidence_, abs=1e-7)
        np.testing.assert_allclose(there.predict_proba(X[:20]), held.predict_proba(X[:20]), atol=1e-6)
    there.save(tmp_path / "gp.npz")
    again = latlin.load(tmp_path / "gp.npz")
    np.testing.assert_allclose(again.predict_proba(X[:20]), there.predict_proba(X[:20]), atol=1e-10)
    with pytest.raises(ValueError, match="left behind"):
        again.leave_one_out()
    with pytest.raises(ValueError, match="approximation 'exact' needs rows in memory"):
        GaussianProcessClassifier(approximation="exact").fit(LocalBlocks.of(X, y, rows=250))


def test_a_regressor_in_blocks_says_why_and_refuses_what_is_not_finite():
    X = np.random.default_rng(0).uniform(-2, 2, (700, 2))
    y = observed("gaussian", X)
    model = GaussianProcessRegressor(optimizer=None, random_state=0).fit(LocalBlocks.of(X, y, rows=200))
    assert "as the rows are in blocks" in model.message_
    inside = model.predict_interval(X, 0.9)
    assert 0.8 < np.mean((inside[:, 0] < y) & (y < inside[:, 1])) < 1.0
    assert len(model.leave_one_out()) == 700
    X[333, 1] = np.nan
    with pytest.raises(ValueError, match="X contains NaN or infinity, in block 1"):
        GaussianProcessRegressor().fit(LocalBlocks.of(X, y, rows=200))
    with pytest.raises(ValueError, match=r"coverage must lie strictly between 0 and 1, got 1\.0"):
        model.predict_interval(X[:3], 1.0)


def test_parameters_are_learnt_from_a_sample_and_the_posterior_from_all_rows(monkeypatch):
    X = np.random.default_rng(0).uniform(-2, 2, (3000, 2))
    y = observed("logit", X)
    options = {"kernel": ConstantKernel(1.0) * RBF([1.0, 1.0]), "random_state": 0, "hyperparameters": "maximise"}
    some = GaussianProcessClassifier(approximation=Inducing(30, learning_rows=1200), **options).fit(X, y)
    whole = GaussianProcessClassifier(approximation=Inducing(30, learning_rows=None), **options).fit(X, y)
    assert "parameters learnt from 1200 of 3000 rows" in some.messages_[0]
    assert "learnt from" not in whole.messages_[0]
    assert len(some.leave_one_out()) == 3000
    assert some.log_evidence_ == pytest.approx(whole.log_evidence_, abs=5.0)
    latent = some.processes_[0].found.latent
    again = some.processes_[0].fitter.fit(latent.setting)
    assert again.posterior.log_evidence == pytest.approx(latent.posterior.log_evidence, abs=1e-6)
    monkeypatch.setattr(inducing, "LADDER", ((300, 10), (900, 20)))
    monkeypatch.setattr(inducing, "LEARNING_POINTS", 20)
    monkeypatch.setattr(inducing, "MANY", 900)
    monkeypatch.setattr(inducing, "UNEXPLAINED", 0.0)
    fewer = GaussianProcessClassifier(approximation=Inducing(30, learning_rows=1200), **options).fit(X, y)
    said = "30 inducing points; parameters learnt with at most 20 points from 1200 of 3000 rows"
    assert said in fewer.messages_[0]
    assert fewer.log_evidence_ == pytest.approx(whole.log_evidence_, abs=5.0)


def test_points_that_explain_nothing_more_are_left_out(monkeypatch):
    """The bound loses what was allowed at most, about; with nothing allowed all points are taken."""
    monkeypatch.setattr(inducing, "LADDER", ((300, 10), (600, 40)))
    monkeypatch.setattr(inducing, "MANY", 600)
    X = np.random.default_rng(0).uniform(-2, 2, (1500, 2))
    options = {"kernel": ConstantKernel(4.0) * RBF([2.0, 2.0]), "random_state": 0, "optimizer": None}
    bounds, counts = {}, {}
    for nats in (1.0, 0.1, 0.0):
        monkeypatch.setattr(inducing, "UNEXPLAINED", nats)
        model = GaussianProcessClassifier(approximation=Inducing(90, learning_rows=600), **options)
        model.fit(X, observed("logit", X))
        bounds[nats], counts[nats] = model.log_evidence_, len(model.inducing_inputs_)
        assert f"{counts[nats]} inducing points explain all rows" in model.messages_[0]
    assert counts[1.0] < counts[0.1] < counts[0.0] < 90
    for nats in (1.0, 0.1):
        assert 0.1 * nats < bounds[0.0] - bounds[nats] < 1.5 * nats


def test_the_best_fit_of_a_sample_is_not_made_again(monkeypatch):
    """Of a sample each parameter is fitted once; then come all points on it, where there are more, and all rows."""
    plain, fitted = inducing.fit_inducing, []

    def noted(basis, blocks, *rest):
        fitted.append((blocks.whole.n_rows, len(basis.Z)))
        return plain(basis, blocks, *rest)

    monkeypatch.setattr(inducing, "fit_inducing", noted)
    monkeypatch.setattr(inducing, "LADDER", ((300, 10),))
    monkeypatch.setattr(inducing, "LEARNING_POINTS", 10)
    monkeypatch.setattr(inducing, "MANY", 300)
    monkeypatch.setattr(inducing, "IMPRECISE", 0.0)
    X = np.random.default_rng(0).uniform(-2, 2, (1500, 2))
    options = {"kernel": ConstantKernel(1.0) * RBF([1.0, 1.0]), "random_state": 0, "hyperparameters": "maximise"}
    model = GaussianProcessClassifier(approximation=Inducing(15, learning_rows=700), **options)
    model.fit(X, observed("logit", X))
    assert sum(points == 10 for _, points in fitted) == len(model.traces_[0])
    assert fitted[-2:] == [(700, 15), (1500, 15)]
    # evaluations of all samples are counted
    assert f"{len(model.traces_[0])} evaluations from 1 start;" in model.messages_[0]


def test_rows_that_are_least_explained_are_the_same_by_one_call_of_the_kernel_and_by_many(monkeypatch):
    X = np.random.default_rng(0).standard_normal((300, 3))
    kernel = ConstantKernel(2.0) * RBF([0.7, 1.0, 2.0])
    at_once = placement.conditional_variance_order(kernel, X, 40)
    # the conditional variances by brute force
    left, chosen = kernel.diag(X), []
    for _ in range(40):
        chosen.append(int(np.argmax(left)))
        K = kernel(X[chosen])
        left = kernel.diag(X) - np.einsum("mn,mn->n", kernel(X[chosen], X), np.linalg.solve(K, kernel(X[chosen], X)))
    np.testing.assert_array_equal(at_once, chosen)
    monkeypatch.setattr(placement, "PAIRS", 0)
    np.testing.assert_array_equal(placement.conditional_variance_order(kernel, X, 40), chosen)


def test_an_interrupted_search_goes_on(tmp_path, monkeypatch):
    X = np.random.default_rng(0).uniform(-2, 2, (6000, 2))
    y = observed("gaussian", X)
    options = {"kernel": ConstantKernel(1.0) * RBF([1.0, 1.0]), "approximation": Inducing(60), "random_state": 0}
    whole = GaussianProcessRegressor(**options).fit(X, y)
    file, plain, calls = tmp_path / "search", Journal.note, [0]

    def interrupted(journal, theta, fitter, now=False):
        plain(journal, theta, fitter, now=True)
        calls[0] += 1
        if calls[0] == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "note", interrupted)
    with pytest.raises(KeyboardInterrupt):
        GaussianProcessRegressor(**options).fit(X, y, checkpoint=file)
    monkeypatch.undo()
    rest = GaussianProcessRegressor(**options).fit(X, y, checkpoint=file)
    # a search ends where a step gains less than 3e-5 of the bound, here some 0.04, on another path
    assert rest.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1.0)
    np.testing.assert_allclose(rest.predict(X[:50]), whole.predict(X[:50]), atol=0.02)
    assert len(rest.trace_) < len(whole.trace_)
    again = GaussianProcessRegressor(**options).fit(X, y, checkpoint=file)
    assert len(again.trace_) <= 4
    np.testing.assert_array_equal(again.process_.fitter.Z, rest.process_.fitter.Z)
    with pytest.raises(ValueError, match="belongs to another model or to other rows"):
        GaussianProcessRegressor(**options).fit(X, y + 1.0, checkpoint=file)
