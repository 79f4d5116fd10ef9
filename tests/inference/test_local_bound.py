import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import approx_fprime, minimize
from scipy.sparse.linalg import aslinearoperator

from latlin import ConvergenceWarning, GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.engines import LocalBound
from latlin.inference.forms.dense import site_form
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.forms.structured import structured_form
from latlin.inference.local_bound.double_loop import centres, inner_objective, maximise_local_bound
from latlin.inference.local_bound.families import ExactFamily, LanczosFamily
from latlin.numerics.ascent import Rules
from latlin.numerics.probes import SparseSum
from latlin.potentials.gaussian import Gaussian
from latlin.potentials.gaussian_mixture import GaussianMixture
from latlin.potentials.generalised_normal import GeneralisedNormal
from latlin.potentials.laplace import Laplace
from latlin.potentials.logistic import Logistic
from latlin.potentials.logit import Logit
from latlin.potentials.probit import Probit
from latlin.potentials.student_t import Cauchy, StudentT
from reference import PlainBound

RNG = np.random.default_rng(3)
N, D = 7, 3
ROWS, MU = RNG.standard_normal((N, D)), 0.3 * RNG.standard_normal(D)
ROOT = RNG.standard_normal((D, D)) + np.eye(D)
SIGMA = ROOT @ ROOT.T + 0.1 * np.eye(D)
LABELS, VALUES = RNG.integers(0, 2, N), 2 * RNG.standard_normal(N)
CONCAVE = {
    "logit": (Logit(LABELS), 0.0),
    "laplace": (Laplace(VALUES, 0.5), VALUES),
    "logistic": (Logistic(VALUES, 0.5), VALUES),
    "generalised normal": (GeneralisedNormal(1.5, VALUES, 0.7), VALUES),
}
OTHERS = {
    "student t": (StudentT(3.0, VALUES, 0.5), VALUES),
    "cauchy": (Cauchy(VALUES, 0.5), VALUES),
    "generalised normal": (GeneralisedNormal(0.6, VALUES, 0.7), VALUES),
    "gaussian mixture": (
        GaussianMixture([0.7, 0.3], np.repeat(VALUES[:, None], 2, axis=1), [0.3, 3.0]),
        VALUES,
    ),
}


def model_of(potential, **options):
    return LatentLinearModel([GaussianFactor(MU, SIGMA), SiteFactor(ROWS, potential, **options)])


def plain_bound(log_xi, potential):
    """(3.8.4), corrected, as it stands."""
    a, b, c = potential.quadratic_bound(np.exp(log_xi))
    inverse = np.linalg.inv(SIGMA)
    precision, pull = inverse + ROWS.T @ (a[:, None] * ROWS), inverse @ MU + ROWS.T @ b
    return (
        c.sum()
        - 0.5 * MU @ inverse @ MU
        + 0.5 * pull @ np.linalg.solve(precision, pull)
        - 0.5 * np.linalg.slogdet(SIGMA)[1]
        - 0.5 * np.linalg.slogdet(precision)[1]
    )


def touching_points(post, centre):
    marginals = post.project(ROWS)
    return 0.5 * np.log((marginals.mean - centre) ** 2 + marginals.variance)


@pytest.mark.parametrize("name", CONCAVE)
def test_optimum_of_an_independent_optimiser(name):
    potential, centre = CONCAVE[name]
    post = infer(model_of(potential), "lvb")
    best = minimize(lambda t: -plain_bound(t, potential), np.zeros(N), method="BFGS", options={"gtol": 1e-6})
    assert post.converged
    assert post.evidence_kind == "lower bound"
    assert post.log_evidence == pytest.approx(-best.fun, abs=1e-6)
    assert plain_bound(touching_points(post, centre), potential) == pytest.approx(post.log_evidence, abs=1e-9)


@pytest.mark.parametrize("name", OTHERS)
def test_stationary_for_sites_that_are_not_log_concave(name):
    potential, centre = OTHERS[name]
    post = infer(model_of(potential), LocalBound(tol=1e-8))
    at = touching_points(post, centre)
    assert plain_bound(at, potential) == pytest.approx(post.log_evidence, abs=1e-9)
    assert np.abs(approx_fprime(at, lambda t: plain_bound(t, potential), 1e-6)).max() < 1e-5
    assert "may be local" in post.message


@pytest.mark.parametrize("name", CONCAVE)
def test_the_bound_never_falls(name):
    post = infer(model_of(CONCAVE[name][0]), LocalBound(tol=1e-10))
    assert np.diff(post.trace).min() > -1e-9
    assert post.n_iter > 2


def mixture_prior_model(seed, n):
    """A regression in six dimensions under the prior of Challis (2013), Figure 2.7, last column."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 6))
    y = rows @ [2, 0, 0, -1.5, 0, 0] + 0.3 * rng.standard_normal(n)
    prior = SiteFactor(None, GaussianMixture([0.8, 0.2], 0.0, [0.1, 2.0]))
    return LatentLinearModel([prior, GaussianFactor(y, 0.09, H=rows)])


@pytest.mark.parametrize("n", [4, 20])
def test_mixture_prior_converges_just_below_gaussian_kl(n):
    model = mixture_prior_model(0, n)
    post = infer(model, "lvb")
    assert post.converged
    assert np.diff(post.trace).min(initial=0.0) > -1e-9
    best = infer(model, "gkl").log_evidence
    assert best - 0.1 < post.log_evidence < post.kl_bound() < best + 1e-9


@pytest.mark.parametrize("seed", [0, 1, 3, 6])
def test_the_best_of_several_starts(seed):
    model = mixture_prior_model(seed, 4)
    family = ExactFamily(site_form(model))
    rules = Rules(monotone=True, max_iter=300)
    ends = [maximise_local_bound(family, first, rules, label="test").state.bound for first in family.firsts()]
    assert max(ends) > ends[0] + 1.0  # the first alone ends at a poor optimum
    assert infer(model, "lvb").log_evidence >= max(ends) - 1e-8


@pytest.mark.parametrize("seed", [5, 16, 35])
def test_spikes_let_go_the_weights_that_gaussian_kl_lets_go(seed):
    model = mixture_prior_model(seed, 4)
    family = ExactFamily(site_form(model))
    rules = Rules(monotone=True, max_iter=300)
    ends = [maximise_local_bound(family, first, rules, label="test").state.bound for first in family.firsts()]
    bound, best = infer(model, "lvb"), infer(model, "gkl").log_evidence
    assert max(ends) < best - 2.0  # the other starts end at poor optima
    assert best - 0.2 < bound.log_evidence < bound.kl_bound() < best


def test_gaussian_sites_are_exact():
    post = infer(model_of(Gaussian(VALUES, 0.7)), "lvb")
    cov = ROWS @ SIGMA @ ROWS.T + 0.49 * np.eye(N)
    residual = VALUES - ROWS @ MU
    exact = -0.5 * residual @ np.linalg.solve(cov, residual) - 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    assert post.log_evidence == pytest.approx(exact, abs=1e-9)
    assert post.evidence_kind == "exact"


def test_kl_bound_is_the_gaussian_kl_bound_at_the_moments():
    for potential, _ in (*CONCAVE.values(), *OTHERS.values()):
        model = model_of(potential)
        post, plain = infer(model, "lvb"), PlainBound(model)
        # the plain bound's 8001 points resolve a kink to about 1e-6
        assert post.kl_bound() == pytest.approx(plain.value(plain.at(post)), abs=1e-5)
        assert post.log_evidence <= post.kl_bound() <= infer(model, "gkl").log_evidence + 1e-8


def test_kl_bound_with_every_kind_of_gaussian_factor():
    factors = [GaussianFactor(0.1, 2.0), GaussianFactor(MU, SIGMA), GaussianFactor(VALUES[:2], 0.5, H=ROWS[:2])]
    factors += [GaussianFactor(VALUES[:D], SIGMA, H=ROWS[:D])]
    model = LatentLinearModel([*factors, SiteFactor(ROWS, Logit(LABELS), offset=0.2)])
    for engine in ("lvb", "gkl"):
        post, plain = infer(model, engine), PlainBound(model)
        assert post.kl_bound() == pytest.approx(plain.value(plain.at(post)), abs=1e-9)
    assert infer(model, "gkl").kl_bound() == pytest.approx(infer(model, "gkl").log_evidence, abs=1e-9)


def test_a_point_has_no_kl_bound():
    with pytest.raises(ValueError, match="needs a Gaussian posterior"):
        infer(model_of(Logit(LABELS)), "map").kl_bound()


def test_a_weight_counts_sites():
    repeated = LatentLinearModel(
        [GaussianFactor(MU, SIGMA), SiteFactor(np.repeat(ROWS, 2, axis=0), Logit(np.repeat(LABELS, 2)), offset=0.3)]
    )
    weighted = model_of(Logit(LABELS), weight=2.0, offset=0.3)
    assert infer(weighted, "lvb").log_evidence == pytest.approx(infer(repeated, "lvb").log_evidence, abs=1e-8)


def test_sparse_prior_without_a_gaussian_on_w():
    design = RNG.standard_normal((3, 5))
    model = LatentLinearModel([GaussianFactor([1.0, 0, -1], 0.01, H=design), SiteFactor(None, Laplace(0.0, 0.5))])
    post = infer(model, "lvb")
    assert post.converged
    assert post.log_evidence <= post.kl_bound() <= infer(model, "gkl").log_evidence + 1e-8


def test_starts_from_a_posterior_and_a_checkpoint(tmp_path):
    model = model_of(Laplace(VALUES, 0.5))
    cold = infer(model, "lvb")
    warm = infer(model, "lvb", start=cold)
    assert warm.n_iter < cold.n_iter
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=1e-9)
    with pytest.warns(ConvergenceWarning):
        infer(model, LocalBound(max_iter=2), checkpoint=tmp_path / "a.npz")
    assert infer(model, "lvb", checkpoint=tmp_path / "a.npz").n_iter == cold.n_iter


@pytest.mark.parametrize("rows", [ROWS, sparse.csr_array(ROWS)])
@pytest.mark.parametrize("potential", [Logit(LABELS), Laplace(VALUES, 0.5), StudentT(3.0, VALUES, 0.5)])
def test_lanczos_of_full_rank_is_exact(rows, potential):
    model = LatentLinearModel([GaussianFactor(0.2, 1.5), SiteFactor(rows, potential)])
    exact, low = infer(model, "lvb"), infer(model, LocalBound(variances="lanczos", rank=D))
    assert low.evidence_kind == "approximation"
    assert low.log_evidence == pytest.approx(exact.log_evidence, abs=1e-7)
    np.testing.assert_allclose(low.mean, exact.mean, atol=1e-6)
    np.testing.assert_allclose(low.covariance(), exact.covariance(), atol=1e-6)


def test_lanczos_improves_with_its_rank():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 40)) * np.linspace(0.1, 2, 40)
    model = LatentLinearModel([GaussianFactor(), SiteFactor(rows, Logit(rng.integers(0, 2, 60)))])
    exact = infer(model, "lvb")
    found = [infer(model, LocalBound(variances="lanczos", rank=rank)).log_evidence for rank in (5, 10, 20, 40)]
    # the complement's precisions are replaced by their mean, which only loses (log is concave)
    assert np.all(np.diff(found) > 0)
    assert found[-1] == pytest.approx(exact.log_evidence, abs=1e-7)


def test_lanczos_starts_from_the_variances_of_a_start():
    model = LatentLinearModel([GaussianFactor(0.2, 1.5), SiteFactor(ROWS, Laplace(VALUES, 0.5))])
    engine = LocalBound(variances="lanczos", rank=D - 1, tol=1e-4)
    before = infer(model, engine)
    form = structured_form(LatentLinearModel([GaussianFactor(0.1, 0.7), SiteFactor(ROWS, Laplace(VALUES, 0.5))]))
    _, x, variance = LanczosFamily(form, D - 1).inherited(before.density)
    np.testing.assert_allclose(variance, before.project(ROWS).variance, rtol=1e-9)
    np.testing.assert_allclose(x, ROWS @ (before.mean - 0.1), atol=1e-12)
    assert infer(model, engine, start=before).n_iter < before.n_iter
    with pytest.raises(ValueError, match="start has dimension"):
        infer(LatentLinearModel([GaussianFactor(cov=np.ones(2))]), engine, start=before)


def test_lanczos_ends_at_its_gradient_and_does_not_wait_for_an_evidence_that_fluctuates():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((80, 40))
    measured = GaussianFactor(np.sin(rows[:30] @ np.ones(40)), 0.01, H=rows[:30])
    model = LatentLinearModel([measured, SiteFactor(rows, Laplace())])
    post = infer(model, LocalBound(variances="lanczos", rank=20, tol=0.1))
    assert post.converged
    assert post.n_iter < 15


def test_lanczos_of_a_large_sparse_model():
    rng = np.random.default_rng(1)
    rows = sparse.random_array(
        (2000, 5000), density=2e-3, random_state=rng, data_sampler=rng.standard_normal, format="csr"
    )
    labels = (rows @ (3 * rng.standard_normal(5000)) > 0).astype(int)
    model = LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor(rows, Logit(labels))])
    post = infer(model, LocalBound(variances="lanczos", rank=20, tol=1e-3))
    assert post.converged
    np.testing.assert_allclose(post.project(rows[:5]).variance, post.project(rows[:5].toarray()).variance, rtol=1e-9)
    assert np.all(post.variance <= 4.0 + 1e-9)
    assert np.isfinite(post.logpdf(post.mean))


def test_sites_without_a_quadratic_bound_are_refused():
    with pytest.raises(ValueError, match=r"Probit sites are not; use engine 'gkl'"):
        infer(model_of(Probit(LABELS)), "lvb")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"variances": "some"}, "variances must be"),
        ({"variances": "lanczos", "rank": 0}, "rank must be an integer of at least 1"),
        ({"rank": 5}, "rank is for variances='lanczos'"),
        ({"variances": "perturb", "rank": 5}, "rank is for variances=.lanczos."),
        ({"samples": 5}, "samples is for variances=.perturb."),
        ({"variances": "perturb", "samples": 1}, "samples must be an integer of at least 2"),
    ],
)
def test_bad_options(options, text):
    with pytest.raises(ValueError, match=text):
        LocalBound(**options)


@pytest.mark.parametrize("name", ["logit", "laplace"])
def test_the_inner_problem_touches_the_bound_at_the_optimum(name):
    potential, centre = CONCAVE[name]
    form = site_form(model_of(potential))
    family = ExactFamily(form)
    state = maximise_local_bound(family, family.first(), Rules(gradient_tol=1e-10), label="test").state
    solution = form.solve(SiteParameters(state.gamma, state.nu))
    inner = inner_objective(family, centres(form.sites), state.variance, state.u, state.x)
    # B = inner + ½ log det(2πP⁻¹) + ½ Σ a_n v_n
    rest = 0.5 * (form.rank * np.log(2 * np.pi) - solution.precision.log_det) + 0.5 * state.gamma @ state.variance
    assert inner + rest == pytest.approx(state.bound, abs=1e-8)
    np.testing.assert_allclose(centres(form.sites), centre - ROWS @ MU, atol=1e-12)


def test_perturb_and_map_draws_have_the_covariance_of_the_precision():
    rng = np.random.default_rng(0)
    rows, weights = sparse.csr_array(rng.standard_normal((5, 3))), rng.uniform(0.2, 3.0, 5)
    matrix = SparseSum(sparse.diags_array([0.5, 1.0, 2.0], format="csr"), rows, weights)
    draws = matrix.perturb(rng.standard_normal((3, 40_000)), rng.standard_normal((5, 40_000)))
    wanted = np.linalg.inv(np.diag([0.5, 1.0, 2.0]) + rows.toarray().T * weights @ rows.toarray())
    np.testing.assert_allclose(draws @ draws.T / 40_000, wanted, atol=0.02 * np.abs(wanted).max())


def test_perturb_and_map_has_no_bias_where_lanczos_underestimates():
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((60, 40)) * np.linspace(0.1, 2, 40), rng.integers(0, 2, 60)
    sites = [SiteFactor(rows[:30], Logit(labels[:30])), SiteFactor(sparse.csr_array(rows[30:]), Logit(labels[30:]))]
    model = LatentLinearModel([GaussianFactor(0.3, 1.2), *sites])
    exact = infer(model, "lvb")
    found = infer(model, LocalBound(variances="perturb", samples=200, tol=1e-3))
    lanczos = infer(model, LocalBound(variances="lanczos", rank=10, tol=1e-3))
    assert found.converged
    assert found.evidence_kind == "approximation"
    assert "perturb and MAP with 200 draws" in found.message
    share, low = found.variance / exact.variance, lanczos.variance / exact.variance
    # the mean of 40 estimates of relative error √(2/200) or less
    assert abs(share.mean() - 1.0) < 0.03 < abs(low.mean() - 1.0)
    np.testing.assert_allclose(found.mean, exact.mean, atol=0.05)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=5 * found.density.structure.error + 0.05)
    again = infer(model, LocalBound(variances="perturb", samples=200, tol=1e-3), start=found)
    assert again.n_iter < found.n_iter


def test_perturb_and_map_refuses_rows_that_are_products_only():
    model = LatentLinearModel([GaussianFactor(), SiteFactor(aslinearoperator(ROWS), Logit(LABELS))])
    with pytest.raises(ValueError, match="needs H as an array"):
        infer(model, LocalBound(variances="perturb"))
