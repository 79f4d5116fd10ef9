"""Structured Gaussian KL: full at full rank, ordered between diagonal and full, exact derivatives, nothing dense."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.densities.structured.base import DiagonalStructure, banded_triangle, sparse_triangle
from latlin.densities.structured.loadings import ChevronStructure, LowRankStructure, SubspaceStructure
from latlin.engines import GaussianKL
from latlin.inference.forms.structured import structured_form
from latlin.inference.gaussian_kl.structured import StructuredBound
from latlin.inference.gaussian_kl.subspace import count_smallest

DIM = 10
RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, DIM)) * (RNG.random((16, DIM)) < 0.6)
W = RNG.standard_normal(DIM)
Y = np.where(X @ W + 0.5 * RNG.standard_normal(16) > 0.0, 1, -1)
ROOT = RNG.standard_normal((DIM, DIM))
COUPLED = ROOT @ ROOT.T / DIM + np.eye(DIM)


def logistic(matrix=X, prior=None):
    return LatentLinearModel(
        [prior or GaussianFactor(mean=0.2, cov=np.linspace(0.5, 2.0, DIM)), SiteFactor(matrix, potentials.Logit(Y))]
    )


def mixed():
    """Poisson counts with weights and offsets, a measured Gaussian, a coupled prior."""
    rng = np.random.default_rng(1)
    return LatentLinearModel(
        [
            GaussianFactor(mean=rng.standard_normal(DIM), cov=COUPLED),
            GaussianFactor(mean=0.3, cov=0.5, H=sparse.csr_array(X[:3])),
            SiteFactor(0.4 * X, potentials.Poisson(rng.poisson(1.0, len(X))), weight=0.5, offset=0.1),
        ]
    )


def sparse_prior():
    """Laplace sites on the coordinates, a Gaussian likelihood, no Gaussian on w itself."""
    return LatentLinearModel([GaussianFactor(mean=X @ W, cov=0.1, H=X), SiteFactor(None, potentials.Laplace(0.0, 0.5))])


def heavy():
    return LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(X, potentials.StudentT(3.0, X @ W, 0.3))])


MODELS = {
    "logistic": logistic(),
    "sparse rows": logistic(sparse.csr_array(X)),
    "mixed": mixed(),
    "sparse prior": sparse_prior(),
}
AS_FULL = [
    {"covariance": "banded", "bandwidth": DIM},
    {"covariance": "chevron", "rank": DIM},
    {"covariance": "sparse", "pattern": np.ones((DIM, DIM))},
    {"covariance": "subspace", "rank": DIM},
    {"covariance": "low-rank", "rank": DIM},
]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("options", AS_FULL, ids=lambda o: o["covariance"])
def test_full_rank_reproduces_the_full_covariance(name, options):
    full, structured = infer(MODELS[name], "gkl"), infer(MODELS[name], GaussianKL(**options))
    assert structured.converged
    assert structured.evidence_kind == "lower bound"
    assert np.isclose(structured.log_evidence, full.log_evidence, rtol=0, atol=1e-6)
    assert np.allclose(structured.mean, full.mean, atol=1e-5)
    assert np.allclose(structured.covariance(), full.covariance(), atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_smaller_structures_lie_between_diagonal_and_full(name):
    model = MODELS[name]
    full = infer(model, "gkl").log_evidence
    diagonal = infer(model, GaussianKL(covariance="diagonal"))
    for options in (
        {"covariance": "banded", "bandwidth": 2},
        {"covariance": "chevron", "rank": 3},
        {"covariance": "chevron", "rank": 3, "order": "natural"},
        {"covariance": "chevron", "rank": 2, "order": [4, 1]},
        {
            "covariance": "sparse",
            "pattern": sparse.random_array((DIM, DIM), density=0.3, random_state=np.random.default_rng(0)),
        },
        {"covariance": "low-rank", "rank": 2},
    ):
        post = infer(model, GaussianKL(**options))
        assert post.converged, options
        assert diagonal.log_evidence - 1e-8 <= post.log_evidence <= full + 1e-8, options
        assert np.all(np.diff(post.trace) >= -1e-9)


def factorised_optimum():
    """Means and scales of the best factorised Gaussian, by a general-purpose optimiser without gradients given."""

    def loss(point):
        m, scale = np.split(point, 2)
        scale = np.exp(scale)
        x, v = X @ m, (X**2) @ scale**2
        rest = -0.5 * np.sum(((m - 0.2) ** 2 + scale**2) / np.linspace(0.5, 2.0, DIM)) + np.log(scale).sum()
        constant = 0.5 * DIM - 0.5 * np.log(np.linspace(0.5, 2.0, DIM)).sum()
        return -(potentials.Logit(Y).expected_log(x, v).value.sum() + rest + constant)

    found = minimize(loss, np.zeros(2 * DIM), method="BFGS", options={"gtol": 1e-6})
    return -found.fun, found.x[:DIM], np.exp(found.x[DIM:])


@pytest.mark.filterwarnings("ignore:.*precision loss.*")
def test_diagonal_is_the_factorised_optimum():
    bound, mean, scale = factorised_optimum()
    for matrix in (X, sparse.csr_array(X)):
        post = infer(logistic(matrix), GaussianKL(covariance="diagonal"))
        assert np.isclose(post.log_evidence, bound, rtol=0, atol=1e-8)
        assert np.allclose(post.mean, mean, atol=1e-4)
        assert np.allclose(np.sqrt(post.variance), scale, atol=1e-4)


STRUCTURES = {
    "diagonal": DiagonalStructure(DIM),
    "banded": banded_triangle(DIM, 2),
    "chevron": ChevronStructure(DIM, np.array([3, 8])),
    "sparse": sparse_triangle(DIM, np.eye(DIM)[::-1]),
    "subspace": SubspaceStructure(np.linalg.qr(ROOT)[0][:, :3], banded_triangle(3, 1)),
    "low-rank": LowRankStructure(DIM, 2),
}


@pytest.mark.parametrize("name", [*MODELS, "heavy"])
@pytest.mark.parametrize("kind", STRUCTURES)
def test_gradients_and_hessian_products(name, kind):
    form = structured_form({**MODELS, "heavy": heavy()}[name])
    objective, rng = StructuredBound(form, STRUCTURES[kind]), np.random.default_rng(2)
    structure = objective.structure
    theta = structure.spread(0.4 + 0.4 * rng.random(DIM))
    theta = structure.flat(structure.factor(theta + 0.1 * rng.standard_normal(structure.size)))
    point = np.concatenate([0.3 * rng.standard_normal(DIM), theta])
    direction, h = rng.standard_normal(len(point)), 1e-5
    if hasattr(structure, "restrict"):
        structure.restrict(direction[DIM:])
    here, up, down = (objective.evaluate(point + t * h * direction) for t in (0, 1, -1))
    assert np.isclose(here.gradient @ direction, (up.bound - down.bound) / (2 * h), rtol=1e-6, atol=1e-6)
    if structure.concave:
        product = objective.curvature(here)(direction)
        difference = -(up.gradient - down.gradient) / (2 * h)
        assert np.allclose(product, difference, rtol=1e-5, atol=1e-5 * np.abs(difference).max())


def test_the_bound_has_every_constant():
    """At the prior itself, the bound is the prior's own normaliser plus the sites' expectations under it."""
    model = mixed()
    form = structured_form(model)
    structure = banded_triangle(DIM, DIM)
    theta = structure.flat(np.linalg.cholesky(COUPLED / np.outer(form.whitening.scale, form.whitening.scale)).T)
    prior = model.gaussians[0].mean
    state = StructuredBound(form, structure).evaluate(np.concatenate([form.coordinates(prior), theta]))
    expected = 0.0
    for factor in model.sites:
        v = np.einsum("nd,de,ne->n", factor.H, COUPLED, factor.H)
        expected += np.sum(0.5 * factor.potential.expected_log(factor.H @ prior + 0.1, v).value)
    v = np.einsum("nd,de,ne->n", X[:3], COUPLED, X[:3])
    expected += potentials.Gaussian(0.3, np.sqrt(0.5)).expected_log(X[:3] @ prior, v).value.sum()
    assert np.isclose(state.bound, expected, rtol=1e-10)


def test_bases_of_a_subspace():
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((12, 24))
    model = LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(rows, potentials.Logit(rng.random(12) < 0.5))])
    full = infer(model, "gkl")
    # what the text says: the smallest eigenvectors of the precision
    gamma = full.sites.gamma
    smallest = np.linalg.eigh(np.eye(24) + rows.T @ (gamma[:, None] * rows))[1][:, :6]
    document = infer(model, GaussianKL(covariance="subspace", rank=6, basis=smallest)).log_evidence
    bounds = {
        basis: infer(model, GaussianKL(covariance="subspace", rank=6, basis=basis)).log_evidence
        for basis in ("eigen", "lanczos", "pca", "projected")
    }
    assert max(bounds.values()) <= full.log_evidence + 1e-8
    assert min(bounds.values()) > document + 0.1
    assert np.isclose(bounds["lanczos"], bounds["eigen"], atol=1e-4), "N ≤ D: keep the largest precisions"
    assert np.isclose(bounds["projected"], bounds["eigen"], atol=1e-2)
    for inner in ("banded", "diagonal"):
        width = 2 if inner == "banded" else None
        post = infer(model, GaussianKL(covariance="subspace", rank=6, inner=inner, bandwidth=width))
        assert np.isclose(post.log_evidence, bounds["eigen"], atol=1e-3), "in its eigenbasis the factor is diagonal"
    full_rank = infer(model, GaussianKL(covariance="subspace", rank=13, basis="lanczos"))
    assert np.isclose(full_rank.log_evidence, full.log_evidence, atol=1e-5), "12 sites inform 12 directions"


def test_directions_whose_removal_leaves_the_rest_most_equal():
    rng = np.random.default_rng(5)
    for _ in range(20):
        values = np.sort(rng.gamma(0.7, size=9))

        def loss(low, values=values):
            rest = values[low : low + 5]
            return np.log(rest.mean()) - np.log(rest).mean()

        assert count_smallest(values, 4) == min(range(5), key=loss)


def test_operators():
    squares = aslinearoperator(X)
    squares.squares = aslinearoperator(X**2)
    dense = infer(logistic(), GaussianKL(covariance="diagonal"))
    exact = infer(logistic(squares), GaussianKL(covariance="diagonal"))
    assert exact.evidence_kind == "lower bound"
    assert np.isclose(exact.log_evidence, dense.log_evidence, rtol=0, atol=1e-8)
    only = LinearOperator(X.shape, matvec=X.dot, rmatvec=X.T.dot, matmat=X.dot, rmatmat=X.T.dot, dtype=float)
    probed = infer(logistic(only), GaussianKL(covariance="diagonal", probes=300))
    assert probed.evidence_kind == "approximation"
    assert "random signs" in probed.message
    assert np.isclose(probed.log_evidence, dense.log_evidence, atol=0.3)
    inside = infer(logistic(only), GaussianKL(covariance="subspace", rank=4, probes=300))
    assert np.isclose(
        inside.log_evidence, infer(logistic(), GaussianKL(covariance="subspace", rank=4)).log_evidence, atol=0.3
    )
    with pytest.raises(ValueError, match="LinearOperator"):
        infer(logistic(only), GaussianKL(covariance="banded", bandwidth=1))


@pytest.mark.parametrize(
    "options",
    [
        {"covariance": "diagonal"},
        {"covariance": "banded", "bandwidth": 2},
        {"covariance": "chevron", "rank": 3},
        {"covariance": "subspace", "rank": 3, "inner": "diagonal"},
        {"covariance": "low-rank", "rank": 1, "tol": 1e-3},
    ],
    ids=lambda o: o["covariance"],
)
def test_nothing_dense_is_formed(options):
    """A D×D matrix would have 20 billion entries here, an N×D one 30 million."""
    rng = np.random.default_rng(6)
    rows = sparse.random_array((200, 150_000), density=20 / 150_000, random_state=rng, format="csr")
    model = LatentLinearModel([GaussianFactor(cov=2.0), SiteFactor(rows, potentials.Logit(rng.random(200) < 0.5))])
    post = infer(model, GaussianKL(**options))
    assert post.converged
    assert post.variance.shape == (150_000,)
    assert np.all(post.project(rows).variance > 0.0)
    assert np.isfinite(post.logpdf(post.sample(1, random_state=0))).all()


def test_what_is_not_concave_is_said():
    post = infer(heavy(), GaussianKL(covariance="diagonal"))
    assert post.converged
    assert "not log-concave" in post.message
    assert post.log_evidence <= infer(heavy(), "gkl").log_evidence + 1e-8
    assert "not concave in a low-rank" in infer(logistic(), GaussianKL(covariance="low-rank", rank=1)).message


@pytest.mark.parametrize("model", [logistic(), sparse_prior()], ids=["logistic", "sparse prior"])
def test_a_chevron_goes_on_from_that_of_a_similar_model(model):
    engine = GaussianKL(covariance="chevron", rank=3)
    before = infer(model, engine)
    more = LatentLinearModel([*model.gaussians, *model.sites, GaussianFactor(mean=0.5, cov=0.1, H=X[:2] + 0.3)])
    after = infer(more, engine, start=before)
    first = before.density.structure.structure.first
    assert np.array_equal(after.density.structure.structure.first, first)
    # the optimum for given coordinates is unique
    cold = infer(more, GaussianKL(covariance="chevron", rank=3, order=first))
    assert after.log_evidence == pytest.approx(cold.log_evidence, abs=1e-7)
    np.testing.assert_allclose(after.covariance(), cold.covariance(), atol=1e-4)
    other = GaussianKL(covariance="chevron", rank=3, order=np.arange(DIM)[::-1])
    assert infer(more, other, start=before).log_evidence == pytest.approx(infer(more, other).log_evidence, abs=1e-7)


def test_a_start_and_a_checkpoint_lead_to_the_same_optimum(tmp_path):
    engine = GaussianKL(covariance="chevron", rank=2)
    cold = infer(logistic(), engine)
    warm = infer(logistic(), engine, start=cold)
    assert np.isclose(warm.log_evidence, cold.log_evidence, rtol=0, atol=1e-8)
    kept = infer(logistic(), engine, checkpoint=tmp_path / "fit.npz")
    again = infer(logistic(), engine, checkpoint=tmp_path / "fit.npz")
    assert again.log_evidence == kept.log_evidence
    assert np.array_equal(again.trace, kept.trace)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"covariance": "cubic"}, "covariance must be one of"),
        ({"covariance": "banded"}, "needs bandwidth"),
        ({"covariance": "chevron"}, "needs rank"),
        ({"covariance": "chevron", "rank": 0}, "needs rank"),
        ({"covariance": "chevron", "rank": 2, "order": "best"}, "order must be"),
        ({"covariance": "sparse"}, "needs pattern"),
        ({"covariance": "subspace", "rank": 2, "basis": "best"}, "basis must be"),
        ({"covariance": "subspace", "rank": 2, "inner": "upper"}, "inner must be"),
        ({"covariance": "diagonal", "rank": 2}, "rank has no meaning"),
    ],
)
def test_bad_options(options, match):
    with pytest.raises(ValueError, match=match):
        GaussianKL(**options)


def test_options_that_do_not_fit_the_model():
    with pytest.raises(ValueError, match="order must list"):
        infer(logistic(), GaussianKL(covariance="chevron", rank=2, order=[0, DIM]))
    with pytest.raises(ValueError, match="pattern must have shape"):
        infer(logistic(), GaussianKL(covariance="sparse", pattern=np.eye(3)))
    with pytest.raises(ValueError, match="basis must have shape"):
        infer(logistic(), GaussianKL(covariance="subspace", rank=2, basis=np.eye(3)))
    with pytest.raises(ValueError, match="improper"):
        infer(
            LatentLinearModel([SiteFactor(np.eye(3)[:2], potentials.Logit([1, 0]))]), GaussianKL(covariance="diagonal")
        )
