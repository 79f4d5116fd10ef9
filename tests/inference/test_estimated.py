"""Covariances by probes give the answers of the exact path within the errors that they state."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from latlin import Constraint, GaussianFactor, LatentLinearModel, Posterior, SiteFactor, infer, potentials
from latlin.additive import AdditiveModel
from latlin.densities.sparse_precision import ProbedPrecisionCovariance
from latlin.engines import GaussianKL, Laplace
from latlin.inference.evidence.gradient import evidence_gradient, precision_slope
from latlin.inference.forms import sparse as sparse_forms
from latlin.inference.infer import choose

ENGINES = {"gkl": GaussianKL(covariance="estimated"), "laplace": Laplace(covariance="estimated")}


def _model(family="logit", n=600, levels=60, by_precision=True, scale=0.7, width=1):
    rng = np.random.default_rng(0)
    parts = [sparse.csr_array(np.column_stack([np.ones(n), rng.standard_normal((n, width))]))]
    eta = -0.3 + 0.4 * parts[0].toarray()[:, 1]
    for _ in range(2):
        labels = rng.integers(levels, size=n)
        eta = eta + scale * rng.standard_normal(levels)[labels]
        parts.append(sparse.csr_array((np.ones(n), (np.arange(n), labels)), shape=(n, levels)))
    H = sparse.csr_array(sparse.hstack(parts, format="csr"))
    site = {
        "logit": lambda: potentials.Logit(np.where(rng.random(n) < 1 / (1 + np.exp(-eta)), 1, -1)),
        "poisson": lambda: potentials.Poisson(rng.poisson(np.exp(eta))),
        "gaussian": lambda: potentials.Gaussian(eta + rng.standard_normal(n), 1.0),
    }[family]()
    precision = np.r_[np.full(1 + width, 0.1), np.full(2 * levels, scale**-2.0)]
    prior = (
        GaussianFactor(0.1, precision=sparse.csr_array(sparse.diags_array(precision)))
        if by_precision
        else GaussianFactor(0.1, cov=1.0 / precision)
    )
    return LatentLinearModel([prior, SiteFactor(H, site, weight=rng.uniform(0.5, 1.5, n))])


@pytest.mark.parametrize("name", list(ENGINES))
@pytest.mark.parametrize("family", ["logit", "poisson", "gaussian"])
def test_the_answers_are_those_of_the_exact_path_within_their_errors(name, family):
    model = _model(family)
    found, exact = infer(model, ENGINES[name]), infer(model, name)
    assert found.evidence_kind == "approximation"
    assert found.converged
    assert abs(found.log_evidence - exact.log_evidence) < 4.0 * found.bound_error + 1e-3
    assert found.bound_error < 0.5
    np.testing.assert_allclose((found.mean - exact.mean) / np.sqrt(exact.variance), 0.0, atol=0.03)
    rows = model.sites[0].H
    value, error = found.density.structure.estimated(rows)
    z = (value - exact.project(rows).variance) / error
    assert np.sqrt(np.mean(z**2)) < 2.0
    np.testing.assert_allclose(value, exact.project(rows).variance, rtol=0.15)
    assert "64 probes" in found.message


def test_rows_with_many_entries_are_estimated_about_the_diagonal():
    model = _model(width=25)
    found, exact = infer(model, ENGINES["gkl"]), infer(model, "gkl")
    rows = model.sites[0].H
    value, error = found.density.structure.estimated(rows)
    truth = exact.project(rows).variance
    assert np.sqrt(np.mean(((value - truth) / error) ** 2)) < 2.0
    assert abs(np.mean(value / truth) - 1.0) < 0.05


def test_a_precision_by_its_products_alone(monkeypatch):
    """Where rows have too many pairs of entries P is never formed."""
    model = _model()
    formed = infer(model, ENGINES["gkl"])
    monkeypatch.setattr("latlin.inference.estimated.PAIRS", 0)
    product = infer(model, ENGINES["gkl"])
    assert product.density.structure.precision.rows is not None
    errors = product.bound_error + formed.bound_error
    assert abs(product.log_evidence - formed.log_evidence) < 4.0 * errors
    np.testing.assert_allclose(product.variance, formed.variance, rtol=0.3)


@pytest.mark.parametrize("name", list(ENGINES))
def test_slopes_of_the_evidence_are_near_the_exact_ones(name):
    model = _model()
    Q = model.gaussians[0].precision
    change = sparse.csr_array(sparse.diags_array(np.r_[0.0, 0.0, np.ones(60), np.zeros(60)]) @ Q)
    found, exact = (precision_slope(infer(model, engine), change, 0, 60.0) for engine in (ENGINES[name], name))
    assert found == pytest.approx(exact, abs=0.15)


def test_slopes_by_variances_where_the_prior_is_a_covariance():
    model = _model(by_precision=False)
    found, exact = (evidence_gradient(infer(model, e)).gaussians[0].d_cov for e in (ENGINES["gkl"], "gkl"))
    assert found[2:62].sum() == pytest.approx(exact[2:62].sum(), abs=0.3)


def test_a_like_posterior_is_a_start_and_changes_no_more_than_the_tolerance():
    model, other = _model(scale=0.7), _model(scale=0.75)
    near = LatentLinearModel([other.gaussians[0], model.sites[0]])
    cold = infer(near, ENGINES["gkl"])
    warm = infer(near, ENGINES["gkl"], start=infer(model, ENGINES["gkl"]))
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=1e-3)
    np.testing.assert_allclose(warm.mean, cold.mean, atol=1e-3)


def test_densities_draws_and_files(tmp_path):
    model = _model()
    found, exact = infer(model, ENGINES["laplace"]), infer(model, "laplace")
    draws = found.sample(4000, random_state=0)
    spread = draws.std(axis=0) / np.sqrt(exact.variance)
    np.testing.assert_allclose(spread, 1.0, atol=0.06)
    points = draws[:5]
    difference = found.logpdf(points) - exact.logpdf(points)
    # log det S is the only estimate in a density
    assert np.abs(difference).max() < 4.0 * found.bound_error + 1e-6
    found.save(tmp_path / "post.latlin")
    again = Posterior.load(tmp_path / "post.latlin")
    np.testing.assert_array_equal(again.variance, found.variance)
    assert isinstance(again.density.structure, ProbedPrecisionCovariance)


def test_auto_says_why_it_factorises_nothing(monkeypatch):
    model = _model()
    assert choose(model)[0] == GaussianKL()
    monkeypatch.setattr(sparse_forms, "ENTRIES", 500)
    engine, reason = choose(model)
    assert engine == GaussianKL(covariance="estimated")
    assert "its factor would hold" in reason
    assert "operations" in reason


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_models_without_what_probes_need_are_refused(engine, tmp_path):
    model = _model()
    held = LatentLinearModel([*model.gaussians, *model.sites], [Constraint(np.r_[0.0, 0.0, np.ones(120)])])
    with pytest.raises(ValueError, match="no constraints"):
        infer(held, engine)
    kinked = LatentLinearModel([*model.gaussians, SiteFactor(model.sites[0].H, potentials.StudentT(df=3.0))])
    with pytest.raises(ValueError, match="log-concave"):
        infer(kinked, engine)
    with pytest.raises(ValueError, match="keeps no checkpoint"):
        infer(model, engine, checkpoint=tmp_path / "state")


def test_learning_scales_by_probes_factorises_nothing(monkeypatch):
    def refuse(*_):
        raise AssertionError("a factor of the precision was asked for")

    rng = np.random.default_rng(2)
    frame = {"a": rng.integers(30, size=400), "b": rng.integers(30, size=400)}
    effects = rng.standard_normal((2, 30))
    frame["y"] = (rng.random(400) < 1 / (1 + np.exp(-effects[0, frame["a"]] - effects[1, frame["b"]]))).astype(float)
    monkeypatch.setattr("latlin.additive.problem.site_form", refuse)
    engine = Laplace(covariance="estimated", probes=8, tol=1e-4)
    model = AdditiveModel("y ~ (1 | a) + (1 | b)", "bernoulli", engine=engine, hyperparameters="maximise").fit(frame)
    assert 0.3 < model.hyperparameters_["sd(a)"]["mean"] < 2.0
