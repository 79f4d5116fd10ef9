import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from latlin import ConvergenceWarning, GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.engines import ExpectationPropagation
from latlin.inference.engine import site_form
from latlin.inference.ep.double_loop import iterate_double_loop
from latlin.inference.forms.sites import SiteParameters
from latlin.numerics.ascent import Rules
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.gaussian_mixture import GaussianMixture
from latlin.potentials.generalised_normal import GeneralisedNormal
from latlin.potentials.laplace import Laplace
from latlin.potentials.logit import Logit
from latlin.potentials.probit import Probit
from latlin.potentials.step import Step
from latlin.potentials.student_t import Cauchy, StudentT
from slow_ep import model_of, site_functions, slow_ep, tilted

RNG = np.random.default_rng(5)


def glm_like(n=9, d=3, scale=1.5):
    rng = np.random.default_rng(n + d)
    rows = scale * rng.standard_normal((n, d))
    root = rng.standard_normal((d, d)) + 1.5 * np.eye(d)
    labels = (rows @ rng.standard_normal(d) > 0).astype(int)
    return 0.3 * rng.standard_normal(d), root @ root.T, rows, labels, rng.standard_normal(n)


def gp_like(n=10):
    rng = np.random.default_rng(n)
    t = np.sort(rng.uniform(-3, 3, n))
    cov = 1.5 * np.exp(-0.5 * (t[:, None] - t) ** 2) + 1e-3 * np.eye(n)
    return np.zeros(n), cov, np.eye(n), (np.sin(2 * t) > 0).astype(int), np.sin(2 * t) + 0.1 * rng.standard_t(2, n)


PROBLEMS = {"glm": glm_like, "few sites": lambda: glm_like(3, 6), "gp": gp_like}
FAMILIES = {
    "logit": lambda labels, values: (Logit(labels), 0.0 * values),
    "probit": lambda labels, values: (Probit(labels), 0.0 * values),
    "laplace": lambda labels, values: (Laplace(values, 0.4), values),
    "cusp": lambda labels, values: (GeneralisedNormal(0.6, values, 0.5), values),
    "step": lambda labels, values: (Step(labels, 0.0), 0.0 * values),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_agrees_with_slow_ep(problem, family):
    mu, sigma, rows, labels, values = PROBLEMS[problem]()
    potential, centres = FAMILIES[family](labels, values)
    model = model_of(mu, sigma, rows, potential)
    functions = site_functions(model.sites[0])
    mean, cov, log_z, _ = slow_ep(mu, sigma, rows, functions, centres)
    for schedule in ("sequential", "parallel"):
        post = infer(model, ExpectationPropagation(schedule=schedule, tol=1e-10))
        assert post.converged
        np.testing.assert_allclose(post.mean, mean, atol=1e-7)
        np.testing.assert_allclose(post.covariance(), cov, atol=1e-7)
        assert post.log_evidence == pytest.approx(log_z, abs=1e-7)
        assert post.evidence_kind == "approximation"


@pytest.mark.parametrize("power", [0.5, 0.9])
def test_power_ep_agrees_with_slow_ep(power):
    mu, sigma, rows, labels, values = glm_like()
    for potential, centres in (FAMILIES["logit"](labels, values), FAMILIES["laplace"](labels, values)):
        model = model_of(mu, sigma, rows, potential)
        mean, cov, log_z, _ = slow_ep(mu, sigma, rows, site_functions(model.sites[0]), centres, power=power)
        post = infer(model, ExpectationPropagation(power=power, tol=1e-10))
        np.testing.assert_allclose(post.mean, mean, atol=1e-7)
        np.testing.assert_allclose(post.covariance(), cov, atol=1e-7)
        assert post.log_evidence == pytest.approx(log_z, abs=1e-7)


def test_negative_site_precisions():
    mu, sigma, rows, _, values = gp_like()
    values = values.copy()
    values[4] += 6.0  # an outlier, whose site has negative precision
    model = model_of(mu, sigma, rows, StudentT(2.0, values, 0.3))
    mean, cov, log_z, tau = slow_ep(mu, sigma, rows, site_functions(model.sites[0]), values, length=0.7)
    assert tau.min() < 0
    for schedule in ("sequential", "parallel"):
        post = infer(model, ExpectationPropagation(schedule=schedule, damping=0.3, tol=1e-10, sweeps=400))
        assert post.converged
        assert post.sites.gamma.min() < 0
        np.testing.assert_allclose(post.mean, mean, atol=1e-7)
        np.testing.assert_allclose(post.covariance(), cov, atol=1e-7)
        assert post.log_evidence == pytest.approx(log_z, abs=1e-7)


def test_one_probit_site_in_closed_form():
    h, cov, mu = np.array([0.7, -1.2]), np.array([[2.0, 0.3], [0.3, 0.5]]), np.array([0.4, -0.1])
    post = infer(model_of(mu, cov, h[None], Probit([1])), "ep")
    m, v = h @ mu, h @ cov @ h
    z = m / np.sqrt(1 + v)
    ratio = norm.pdf(z) / norm.cdf(z)
    s = cov @ h
    assert post.log_evidence == pytest.approx(log_ndtr(z), abs=1e-12)
    np.testing.assert_allclose(post.mean, mu + s * ratio / np.sqrt(1 + v), atol=1e-12)
    np.testing.assert_allclose(post.covariance(), cov - np.outer(s, s) * ratio * (z + ratio) / (1 + v), atol=1e-12)


def test_independent_sites_are_exact():
    scales, labels = np.array([0.5, -1.5, 2.0]), [1, 0, 1]
    model = LatentLinearModel([GaussianFactor(0.3, 1.0), SiteFactor(np.diag(scales), Probit(labels))])
    signs = np.array([1, -1, 1])
    exact = log_ndtr(signs * scales * 0.3 / np.sqrt(1 + scales**2)).sum()
    assert infer(model, "ep").log_evidence == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_gaussian_sites_are_exact_in_one_sweep(schedule, power):
    mu, sigma, rows, _, values = glm_like(12, 5)
    model = model_of(mu, sigma, rows, Gaussian(values, 0.7))
    post = infer(model, ExpectationPropagation(schedule=schedule, power=power))
    cov = rows @ sigma @ rows.T + 0.49 * np.eye(12)
    residual = values - rows @ mu
    gain = np.linalg.solve(cov, rows @ sigma).T
    assert post.n_iter == 1
    assert post.evidence_kind == "exact"
    np.testing.assert_allclose(post.mean, mu + gain @ residual, atol=1e-9)
    exact = -0.5 * residual @ np.linalg.solve(cov, residual) - 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    assert post.log_evidence == pytest.approx(exact, abs=1e-9)


def test_one_sweep_is_the_gaussian_density_filter():
    mu, sigma, rows, labels, values = glm_like(8, 3)
    for potential, centres in (FAMILIES["logit"](labels, values), FAMILIES["laplace"](labels, values)):
        model = model_of(mu, sigma, rows, potential)
        post = infer(model, ExpectationPropagation(sweeps=1))
        m, s = mu.copy(), sigma.copy()
        for h, log_phi, centre in zip(rows, site_functions(model.sites[0]), centres, strict=True):
            mean, var = h @ m, h @ s @ h
            _, m_hat, v_hat = tilted(log_phi, mean, var, centre)
            # A.2.2, corrected: m + Sg and S − S(ggᵀ − 2G)S
            gain = s @ h / var
            m, s = m + gain * (m_hat - mean), s - np.outer(gain, gain) * (var - v_hat)
        np.testing.assert_allclose(post.mean, m, atol=1e-9)
        np.testing.assert_allclose(post.covariance(), s, atol=1e-9)
        assert not post.converged
        assert "one pass" in post.message


def test_sites_that_vanish_leave_no_trace():
    rows = RNG.standard_normal((6, 3))
    labels = [0, 1, 1, 0, 1, 0]
    full = infer(LatentLinearModel([GaussianFactor(cov=2.0), SiteFactor(rows[:4], Logit(labels[:4]))]), "ep")
    for factor in (1e-9, 1e-160, 0.0):
        weak = np.concatenate([rows[:4], factor * rows[4:]])
        post = infer(LatentLinearModel([GaussianFactor(cov=2.0), SiteFactor(weak, Logit(labels))]), "ep")
        assert post.log_evidence == pytest.approx(full.log_evidence + 2 * np.log(0.5), abs=1e-8)
        np.testing.assert_allclose(post.mean, full.mean, atol=1e-7)
    weight = np.array([1, 1, 1, 1, 1e-14, 0.0])
    post = infer(LatentLinearModel([GaussianFactor(cov=2.0), SiteFactor(rows, Logit(labels), weight=weight)]), "ep")
    assert post.log_evidence == pytest.approx(full.log_evidence, abs=1e-9)


def test_zero_weight_of_a_hard_step():
    model = LatentLinearModel([GaussianFactor(), SiteFactor(np.eye(2), Step([1, -1], 0.0), weight=[1.0, 0.0])])
    assert infer(model, "ep").log_evidence == pytest.approx(np.log(0.5), abs=1e-10)


def test_sparse_prior_without_a_gaussian_on_w():
    rng = np.random.default_rng(2)
    design = rng.standard_normal((4, 6))
    measured = GaussianFactor(design @ np.array([2.0, 0, 0, -1.5, 0, 0]), 0.01, H=design)
    model = LatentLinearModel([measured, SiteFactor(None, Laplace(0.0, 0.5))])
    one, other = (infer(model, ExpectationPropagation(schedule=s, sweeps=300)) for s in ("sequential", "parallel"))
    assert one.converged
    assert other.converged
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-7)
    assert one.log_evidence > infer(model, "gkl").log_evidence


def test_mixed_blocks_and_offsets():
    mu, sigma, rows, labels, _ = glm_like(8, 3)
    offset = np.linspace(-1, 1, 8)
    model = LatentLinearModel(
        [GaussianFactor(mu, sigma), SiteFactor(rows, Logit(labels), offset=offset), SiteFactor(None, Laplace(0.2, 0.7))]
    )
    functions = [lambda x, f=f, o=o: f(x + o) for f, o in zip(site_functions(model.sites[0]), offset, strict=True)]
    functions += [lambda x: Laplace(0.2, 0.7).log_density(x)] * 3
    stacked, centres = np.concatenate([rows, np.eye(3)]), np.concatenate([-offset, np.full(3, 0.2)])
    mean, cov, log_z, _ = slow_ep(mu, sigma, stacked, functions, centres)
    post = infer(model, ExpectationPropagation(tol=1e-10))
    np.testing.assert_allclose(post.mean, mean, atol=1e-7)
    np.testing.assert_allclose(post.covariance(), cov, atol=1e-7)
    assert post.log_evidence == pytest.approx(log_z, abs=1e-7)


def test_many_sites_in_blocks_agree_with_all_at_once():
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((700, 6))
    labels = (rows @ rng.standard_normal(6) > 0.3 * rng.standard_normal(700)).astype(int)
    model = LatentLinearModel([GaussianFactor(cov=100.0), SiteFactor(rows, Probit(labels))])
    one, other = (infer(model, ExpectationPropagation(schedule=s)) for s in ("sequential", "parallel"))
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-7)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-6)


def test_what_did_not_converge_says_so():
    mu, sigma, rows, _, values = gp_like()
    model = model_of(mu, sigma, rows, StudentT(2.0, values, 0.1))
    with pytest.warns(ConvergenceWarning, match="raise sweeps or damping"):
        post = infer(model, ExpectationPropagation(sweeps=2, double_loop=0))
    assert not post.converged
    assert "did not converge in 2 steps" in post.message


def outlying(seed):
    """Cauchy observations that disagree: sweeps over the sites go round in circles for most seeds."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((8, 2))
    y = rows @ [1, -1] + rng.standard_cauchy(8)
    return LatentLinearModel([GaussianFactor(cov=25.0), SiteFactor(rows, Cauchy(y, 0.2))]), rows, y


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("seed", [0, 2, 3, 6])
def test_the_double_loop_ends_where_sweeps_do_not(seed, power):
    model, rows, y = outlying(seed)
    with pytest.warns(ConvergenceWarning):
        swept = infer(model, ExpectationPropagation(power=power, sweeps=20, double_loop=0))
    assert not swept.converged
    post = infer(model, ExpectationPropagation(power=power, sweeps=20))
    assert post.converged
    assert "double loop converged" in post.message
    # moments of the tilted distributions, by a fine rule
    marginals = post.project(rows)
    for n, (m, v) in enumerate(zip(marginals.mean, marginals.variance, strict=True)):
        precision = 1 / v - power * post.sites.gamma[n]
        mean = (m / v - power * post.sites.nu[n]) / precision
        cauchy = Cauchy(y[n], 0.2)
        _, m_hat, v_hat = tilted(lambda x, c=cauchy: power * c.log_density(x), mean, 1 / precision, y[n])
        assert m_hat == pytest.approx(m, abs=1e-5 * np.sqrt(v))
        assert v_hat == pytest.approx(v, rel=1e-5)


#: rows and values between two narrow peaks of every coordinate, on which sweeps stall
STALLED = (np.array([[-0.18, 1.19], [0.33, -0.01], [1.53, -0.56]]), np.array([0.64, 4.88, 4.11]))


def stalled():
    rows, y = STALLED
    prior = SiteFactor(None, GaussianMixture([0.5, 0.5], [-1.0, 1.0], [0.05, 0.05]))
    return LatentLinearModel([GaussianFactor(y, 0.5, H=rows), GaussianFactor(cov=10.0, dim=2), prior])


def test_the_double_loop_begins_at_marginals_as_narrow_as_the_tilted_distributions():
    model = stalled()
    with pytest.warns(ConvergenceWarning):
        assert not infer(model, ExpectationPropagation(double_loop=0)).converged
    post = infer(model, "ep")
    assert post.converged
    for m, v, gamma, nu in zip(post.mean, post.variance, post.sites.gamma, post.sites.nu, strict=True):
        precision = 1 / v - gamma
        # each peak has a weight and moments of its own under the cavity
        narrow, centres = 1 / (400.0 + precision), np.array([-1.0, 1.0])
        means = narrow * (400.0 * centres + m / v - nu)
        log_weight = 0.5 * means**2 / narrow - 200.0 * centres**2
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        assert weight @ means == pytest.approx(m, abs=1e-6 * np.sqrt(v))
        assert narrow + weight @ means**2 - (weight @ means) ** 2 == pytest.approx(v, rel=1e-6)


def test_the_double_loop_begins_again_where_the_sweeps_ended(monkeypatch):
    begins = []

    def second_alone(form, first, power, rules):
        begins.append(first.gamma)
        return iterate_double_loop(form, first, power, rules) if len(begins) > 1 else None

    monkeypatch.setattr("latlin.inference.ep.engine.iterate_double_loop", second_alone)
    post = infer(stalled(), "ep")
    assert post.converged
    assert len(begins) == 2
    assert not np.array_equal(*begins)


@pytest.mark.parametrize("family", ["logit", "laplace", "step"])
def test_the_double_loop_has_the_fixed_point_of_sweeps(family):
    mu, sigma, rows, labels, values = glm_like()
    model = model_of(mu, sigma, rows, FAMILIES[family](labels, values)[0])
    form, zero = site_form(model), np.zeros(len(rows))
    rules = Rules(gradient_tol=1e-9, max_iter=300)
    found = iterate_double_loop(form, SiteParameters(zero, zero), 1.0, rules)
    swept = infer(model, ExpectationPropagation(tol=1e-10))
    assert found.converged
    assert np.diff(found.trace).min() > -1e-8
    assert found.state.objective == pytest.approx(swept.log_evidence, abs=1e-7)
    np.testing.assert_allclose(found.state.gamma, swept.sites.gamma, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_the_free_energy_of_the_double_loop_never_rises(seed):
    form = site_form(outlying(seed)[0])
    zero = np.zeros(8)
    found = iterate_double_loop(form, SiteParameters(zero, zero), 1.0, Rules(gradient_tol=1e-8, max_iter=300))
    assert found.converged
    assert np.diff(found.trace).min() > -1e-8


def test_the_bound_of_the_same_gaussian_is_in_the_message():
    mu, sigma, rows, labels, _ = glm_like()
    post = infer(model_of(mu, sigma, rows, Logit(labels)), "ep")
    assert float(post.message.rsplit(" ", 1)[1]) == pytest.approx(post.kl_bound(), rel=1e-5)
    walls = infer(model_of(mu, sigma, rows, Step(labels, 0.0)), "ep")
    assert walls.message.endswith("its Gaussian KL bound is −∞")


def test_starts_from_a_posterior_of_a_similar_model():
    mu, sigma, rows, labels, _ = glm_like()
    first = infer(model_of(mu, sigma, rows, Logit(labels)), "ep")
    nearby = model_of(mu + 1e-3, sigma, rows, Logit(labels))
    cold, warm = infer(nearby, "ep"), infer(nearby, "ep", start=first)
    assert warm.n_iter < cold.n_iter
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=1e-7)
    by_moments = infer(nearby, "ep", start=infer(nearby, "map"))
    assert by_moments.log_evidence == pytest.approx(cold.log_evidence, abs=1e-7)


def test_goes_on_from_a_checkpoint(tmp_path):
    mu, sigma, rows, labels, _ = glm_like()
    model, path = model_of(mu, sigma, rows, Logit(labels)), tmp_path / "ep.npz"
    with pytest.warns(ConvergenceWarning):
        infer(model, ExpectationPropagation(sweeps=3, double_loop=0), checkpoint=path)
    whole = infer(model, ExpectationPropagation())
    resumed = infer(model, ExpectationPropagation(), checkpoint=path)
    assert resumed.n_iter == whole.n_iter
    assert resumed.log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"power": 0.0}, "power must be a number above 0 and at most 1, got 0"),
        ({"damping": 1.0}, "damping must be a number of at least 0 and below 1, got 1"),
        ({"schedule": "random"}, "schedule must be one of"),
        ({"sweeps": 0}, "sweeps must be an integer of at least 1"),
    ],
)
def test_bad_options(options, text):
    with pytest.raises(ValueError, match=text):
        ExpectationPropagation(**options)


@pytest.mark.parametrize("site", [potentials.Cauchy([0.0]), potentials.Logistic([0.0]), potentials.Poisson([1.0])])
def test_a_cavity_that_is_no_density_is_no_fixed_point(site):
    """Without a prior the cavity of the only site is flat: log Z is 0, and no stand-in says so."""
    with pytest.warns(ConvergenceWarning):
        post = infer(LatentLinearModel([SiteFactor(None, site)]), "ep")
    assert not post.converged
    assert "no density" in post.message
