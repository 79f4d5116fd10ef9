"""The moments of an integral against dense quadrature of the same process."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as SklearnRBF
from sklearn.gaussian_process.kernels import ConstantKernel

from latlin.quadrature import BayesianQuadrature, Gaussian, GaussianMixture, Hyperparameters, Uniform
from latlin.quadrature.bayesian import LogBelief
from latlin.quadrature.belief import PlainBelief, WarpedBelief
from latlin.quadrature.kernels import HALF, KERNELS, Box
from latlin.quadrature.surrogate import (
    DrawnHyperparameters,
    HyperparameterMode,
    SurrogateLikelihood,
    condition,
    constant_basis,
    empty_basis,
)

MEASURES = {
    "gaussian": Gaussian(0.5, 2.0),
    "mixture": GaussianMixture([1.0, 2.0], [[-1.0], [1.5]], [0.3, 0.8]),
    "box": Uniform(-1.0, 2.0),
}
FIXED = Hyperparameters(np.array([0.6]), nugget=1e-4, variance=1.5)


def integrand(x):
    return 1.0 + np.sin(2.0 * x[:, 0]) * np.exp(-0.2 * x[:, 0] ** 2)


def conditioned(measure, n=7, **options):
    x = measure.frame.outward(np.linspace(-1.5, 1.5, n)[:, None])
    return BayesianQuadrature(measure, kernel="rbf", hyperparameters=FIXED, **options).condition(x, integrand(x))


def dense_rule(standard):
    nodes, weights = np.polynomial.legendre.leggauss(300)
    reach = HALF if isinstance(standard, Box) else 8.0
    z = (reach * nodes)[:, None]
    return z, reach * weights * np.exp(standard.logpdf(z))


@pytest.mark.parametrize("mean", ["constant", "zero"])
@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())
def test_plain_moments_are_those_of_the_process(measure, mean):
    belief = conditioned(measure, mean=mean)
    z, w = dense_rule(measure.standard)
    covariance = belief.scale**2 * belief.process.covariance(z, z)
    assert belief.integral.mean == pytest.approx(w @ belief.mean(z), rel=1e-9)
    assert belief.integral.variance == pytest.approx(w @ covariance @ w, rel=1e-7)
    np.testing.assert_allclose(belief.variances(z), np.diagonal(covariance), rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(belief.link(z) * belief.scale, covariance @ w, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("matched", [False, True], ids=["wsabi-l", "wsabi-m"])
@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())
def test_warped_moments_are_those_of_the_process(measure, matched):
    belief = conditioned(measure, warp="wsabi-m" if matched else "wsabi-l")
    z, w = dense_rule(measure.standard)
    m, c = belief.process.mean(z), belief.process.covariance(z, z)
    mean = belief.offset + 0.5 * m**2 + matched * 0.5 * np.diagonal(c)
    covariance = np.outer(m, m) * c + matched * 0.5 * c**2
    assert belief.integral.mean == pytest.approx(belief.scale * (w @ mean), rel=1e-9)
    curved = w @ (np.outer(m, m) * c + 0.5 * c**2) @ w
    gap = 0.5 * w @ np.diagonal(c)  # between the means of the two
    assert belief.integral.variance == pytest.approx(belief.scale**2 * (curved + gap**2), rel=1e-6)
    np.testing.assert_allclose(belief.mean(z), belief.scale * mean, rtol=1e-9)
    np.testing.assert_allclose(belief.variances(z), belief.scale**2 * np.diagonal(covariance), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(belief.link(z), belief.scale * (c * m) @ w, rtol=1e-5, atol=1e-8)


def test_fixed_zero_mean_process_is_that_of_scikit_learn():
    measure = MEASURES["gaussian"]
    x = measure.frame.outward(np.linspace(-1.5, 1.5, 7)[:, None])
    belief = conditioned(measure, mean="zero")
    kernel = ConstantKernel(FIXED.variance, "fixed") * SklearnRBF(0.6 * np.sqrt(2.0), "fixed")
    reference = GaussianProcessRegressor(kernel, alpha=FIXED.nugget * FIXED.variance, optimizer=None)
    reference.fit(x, integrand(x))
    new = np.linspace(-3.0, 4.0, 11)[:, None]
    mean, sd = reference.predict(new, return_std=True)
    z = measure.frame.inward(new)
    np.testing.assert_allclose(belief.mean(z), mean, rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(belief.variances(z)), sd, rtol=1e-5)


def test_constant_is_integrated_without_error():
    x = np.linspace(0.0, 1.0, 6)[:, None]
    belief = BayesianQuadrature(Uniform(0.0, 1.0)).condition(x, np.full(6, 3.0))
    assert belief.integral.mean == pytest.approx(3.0, rel=1e-9)
    assert belief.integral.variance < 1e-20


@pytest.mark.parametrize("scale", [1e-200, 1e12])
@pytest.mark.parametrize("warp", [None, "wsabi-l", "wsabi-m"])
def test_units_of_the_integrand_do_not_matter(scale, warp):
    x = np.linspace(-2.0, 2.0, 9)[:, None]
    engine = BayesianQuadrature(Gaussian(0.0, 1.0), hyperparameters="ml", warp=warp)
    y = integrand(x)
    one, other = engine.condition(x, y).integral, engine.condition(x, scale * y).integral
    assert other.mean / scale == pytest.approx(one.mean, rel=1e-4)


def test_rotating_a_gaussian_measure_keeps_the_integral():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((25, 2))
    factor = np.array([[1.0, 0.0], [0.9, 0.3]])
    values = np.cos(z[:, 0]) + z[:, 1] ** 2
    standard = BayesianQuadrature(Gaussian([0.0, 0.0], 1.0)).condition(z, values).integral
    mapped = BayesianQuadrature(Gaussian([1.0, 2.0], factor @ factor.T)).condition(z @ factor.T + [1.0, 2.0], values)
    assert mapped.integral.mean == pytest.approx(standard.mean, rel=1e-5)


@pytest.mark.parametrize("basis", [constant_basis, empty_basis])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda k: k.name)
def test_likelihood_slopes_are_finite_differences(kernel, basis):
    rng = np.random.default_rng(1)
    z = rng.standard_normal((12, 2))
    y = np.sin(z[:, 0]) + z[:, 1] ** 2

    def value(theta):
        return SurrogateLikelihood(kernel, basis(z), z, y).with_slopes(np.exp(theta[:2]), float(np.exp(theta[2])))

    theta = np.log([0.7, 1.3, 1e-3])
    numeric = [(value(theta + e)[0] - value(theta - e)[0]) / 2e-5 for e in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(value(theta)[1], numeric, rtol=1e-5, atol=1e-6)


def test_likelihood_integrates_mean_and_variance_out():
    # p(y|ℓ) ∝ ∬ N(y|c1, vR) dc dv/v, up to a constant that length scales do not move
    z = np.array([[-1.0], [0.2], [0.9]])
    y = np.array([0.3, 1.1, -0.4])
    c, log_v = np.linspace(-40.0, 40.0, 3001), np.linspace(-12.0, 16.0, 1401)

    def brute(length):
        r = KERNELS["rbf"].gram(z, z, np.array([length])) + 1e-3 * np.eye(3)
        away = y[None] - c[:, None]
        square = np.einsum("ni,ij,nj->n", away, np.linalg.inv(r), away)
        inside = np.exp(-0.5 * square[:, None] / np.exp(log_v) - 1.5 * log_v)
        return np.log(inside.sum()) - 0.5 * np.linalg.slogdet(r)[1]

    def closed(length):
        return SurrogateLikelihood(KERNELS["rbf"], constant_basis(z), z, y).value(np.array([length]), 1e-3)

    assert closed(0.5) - closed(1.0) == pytest.approx(brute(0.5) - brute(1.0), abs=5e-3)


def test_marginal_begins_with_the_mode_and_weighs_to_one():
    rng = np.random.default_rng(2)
    z = rng.standard_normal((20, 1))
    y = np.sin(3.0 * z[:, 0])
    mode = HyperparameterMode(noisy=False)(KERNELS["rbf"], constant_basis, z, y, None).mode
    ensemble = DrawnHyperparameters(noisy=False)(KERNELS["rbf"], constant_basis, z, y, None)
    np.testing.assert_allclose(ensemble.mode.lengths, mode.lengths)
    assert sum(w for w, _ in ensemble.members) == pytest.approx(1.0)
    assert len(ensemble.members) > 1
    likelihood = SurrogateLikelihood(KERNELS["rbf"], constant_basis(z), z, y)
    base = likelihood.value(mode.lengths, mode.nugget)
    for factor in (0.8, 1.25):
        assert likelihood.value(factor * mode.lengths, mode.nugget) < base


def test_noise_is_found():
    rng = np.random.default_rng(3)
    z = rng.uniform(-2.0, 2.0, (150, 1))
    y = np.sin(2.0 * z[:, 0]) + 0.2 * rng.standard_normal(150)
    h = HyperparameterMode(noisy=True)(KERNELS["rbf"], constant_basis, z, y, None).mode
    process = condition(KERNELS["rbf"], constant_basis, z, y, h)
    assert np.sqrt(process.variance * h.nugget) == pytest.approx(0.2, rel=0.2)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kernel": "cubic"}, "kernel must be one of"),
        ({"mean": "linear"}, "mean must be one of"),
        ({"warp": "cube root"}, "warp must be one of"),
        ({"warp": "wsabi-l", "kernel": "matern32"}, "closed forms for kernel='rbf' only"),
        ({"hyperparameters": "guess"}, "hyperparameters must be one of 'marginal', 'ml', or a"),
        ({"hyperparameters": Hyperparameters(np.array([-1.0]))}, "positive lengths"),
        ({"acquisition": "random"}, "acquisition must be one of"),
    ],
)
def test_bad_options_are_named(options, text):
    with pytest.raises(ValueError, match=text):
        BayesianQuadrature(Gaussian(0.0, 1.0), **options).integrate(integrand, 10)


def test_the_kernel_is_chosen_by_the_evaluations():
    integrands = (np.sin, lambda x: np.abs(x - 0.3), lambda x: (x > 0.3).astype(float))
    points = np.linspace(-1.6, 1.6, 40)[:, None]
    engine = BayesianQuadrature(Uniform(-1.7, 1.7))
    names = [engine.condition(points, f(points[:, 0])).process.kernel.name for f in integrands]
    assert names == ["rbf", "matern32", "matern12"]


def test_kernels_are_weighed_by_their_evidence():
    points = np.array([-1.3, -0.6, 0.0, 0.9, 1.5])[:, None]
    values = np.array([0.1, 0.6, 0.4, 0.9, 0.2])
    kinds = [("rbf", None), ("matern32", None), ("matern12", None), ("rbf", "log"), ("matern32", "log")]
    parts = [BayesianQuadrature(Uniform(-1.7, 1.7), kernel=k, warp=w).condition(points, values) for k, w in kinds]
    w = np.exp([part.ensemble.log_posterior for part in parts])
    w /= w.sum()
    means, variances = (np.array([getattr(part.integral, name) for part in parts]) for name in ("mean", "variance"))
    pooled = BayesianQuadrature(Uniform(-1.7, 1.7)).condition(points, values).integral
    assert pooled.mean == pytest.approx(w @ means)
    assert pooled.variance == pytest.approx(w @ variances + w @ (means - w @ means) ** 2)


def test_the_logarithm_is_chosen_by_the_evaluations():
    points = np.linspace(-1.6, 1.6, 12)[:, None]
    engine = BayesianQuadrature(Uniform(-1.7, 1.7))
    integrands = (lambda x: 1.0 / (1.0 + 40.0 * x * x), lambda x: 2.0 + np.sin(x), lambda x: np.maximum(x, 0.0))
    kinds = [type(engine.condition(points, f(points[:, 0]))) for f in integrands]
    # a peak; a wave above zero; an integrand with zeros, which has no logarithm
    assert kinds == [LogBelief, PlainBelief, PlainBelief]


def test_a_measure_without_closed_forms_leaves_one_kernel():
    cov = np.array([[1.0, 0.5], [0.5, 1.0]])
    measure = GaussianMixture([0.5, 0.5], np.zeros((2, 2)), [cov, np.eye(2)])
    points = np.random.default_rng(0).standard_normal((12, 2))
    values = (points[:, 0] > 0.0).astype(float)
    automatic, plain = (
        BayesianQuadrature(measure, kernel=k).condition(points, values).integral for k in ("auto", "rbf")
    )
    assert (automatic.mean, automatic.variance) == (plain.mean, plain.variance)


def test_a_fit_of_many_evaluations_serves_until_they_double():
    model = BayesianQuadrature(Uniform(-1.7, 1.7))._model()
    points = np.random.default_rng(0).uniform(-1.7, 1.7, (240, 1))
    values = np.sin(3.0 * points[:, 0])
    few = model(points[:60], values[:60], None)
    many = model(points[:120], values[:120], few)
    assert (few.ensemble.size, many.ensemble.size) == (60, 120)
    assert model(points[:239], values[:239], many).ensemble is many.ensemble
    assert model(points, values, many).ensemble.size == 240
    constant_so_far = model(points[:120], np.ones(120), None)
    assert model(points[:130], values[:130], constant_so_far).ensemble.size == 130


def test_values_that_no_longer_suit_the_logarithm_are_fitted_anew():
    measure, rng = Uniform(-1.7, 1.7, dim=2), np.random.default_rng(0)
    points = rng.uniform(-1.7, 1.7, (120, 2))
    values = np.exp(-4.0 * np.sum(points**2, axis=1))
    model = BayesianQuadrature(measure)._model()
    logs = model(points[:110], values[:110], None)
    assert isinstance(logs, LogBelief)
    values[-1] = 0.0
    others = model(points, values, logs)
    assert not isinstance(others, LogBelief)
    assert others.ensemble.size == 120


@pytest.mark.parametrize("basis", [constant_basis, empty_basis])
def test_left_out_values_are_those_of_a_process_without_them(basis):
    rng = np.random.default_rng(3)
    points, values = rng.standard_normal((9, 2)), rng.standard_normal(9)
    given = Hyperparameters(np.array([0.8, 1.3]), 1e-3, 2.0)
    means, variances = condition(KERNELS["matern32"], basis, points, values, given).left_out(values)
    for i in range(9):
        rest = np.arange(9) != i
        process = condition(KERNELS["matern32"], basis, points[rest], values[rest], given)
        mean, variance = process.moments(points[i : i + 1])
        assert means[i] == pytest.approx(mean[0], abs=1e-9)
        # that of an evaluation, with its noise
        assert variances[i] == pytest.approx(variance[0] + 2.0 * 1e-3, rel=1e-9)


def test_many_evaluations_are_judged_by_what_they_add_to_the_integral():
    """Bumps of several widths: the tails speak for the logarithm, and the square root foresees the rest."""
    rng = np.random.default_rng(0)
    centres, widths = 0.8 * rng.standard_normal((3, 4)), rng.uniform(0.5, 1.0, (3, 4))
    measure = Gaussian(0.0, 1.0, dim=4)

    def f(x):
        return np.exp(-0.5 * np.sum(((x[:, None] - centres) / widths) ** 2, axis=2)).sum(axis=1)

    truth = np.prod(widths / np.sqrt(1 + widths**2) * np.exp(-0.5 * centres**2 / (1 + widths**2)), axis=1).sum()
    points = measure.sample(200, random_state=1)
    kinds = {"log": {"warp": "log", "kernel": "rbf"}, "root": {"warp": "wsabi-l"}, "chosen": {}}
    beliefs = {name: BayesianQuadrature(measure, **kind).condition(points, f(points)) for name, kind in kinds.items()}
    assert isinstance(beliefs["chosen"], WarpedBelief)
    away = {name: abs(belief.integral.mean / truth - 1.0) for name, belief in beliefs.items()}
    assert away["chosen"] == away["root"] < 0.6 * away["log"]
    # fewer than a hundred are weighed by their evidence
    few = BayesianQuadrature(measure).condition(points[:60], f(points[:60]))
    assert not isinstance(few, WarpedBelief)
