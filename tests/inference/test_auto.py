"""`infer(model, "auto")`: on ten named problems within 0.1 nat of the best bound of any engine, and it says why."""

import numpy as np
import pytest
from scipy import sparse

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.engines import AffineKL, GaussianKL
from latlin.inference.infer import choose


def design(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((n, d)), rng.standard_normal(d)


def logistic(n, d):
    rng, x, w = design(n, d)
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-x @ w))
    return LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(x, potentials.Logit(y))])


def probit_process():
    x = np.linspace(-3.0, 3.0, 25)
    kernel = 2.0 * np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-3 * np.eye(25)
    return LatentLinearModel([GaussianFactor(cov=kernel), SiteFactor(None, potentials.Probit(np.sin(2 * x) > 0.0))])


def poisson():
    rng, x, w = design(40, 5, seed=1)
    counts = rng.poisson(np.exp(0.4 * x @ w))
    return LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(0.4 * x, potentials.Poisson(counts))])


def robust():
    rng, x, w = design(30, 4, seed=2)
    y = x @ w + 0.3 * rng.standard_t(3, 30)
    return LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor(x, potentials.StudentT(3.0, y, 0.3))])


def sparse_regression(d):
    rng, x, w = design(d, d, seed=3)
    w[d // 2 :] = 0.0
    y = x @ w + 0.3 * rng.standard_normal(d)
    return LatentLinearModel([GaussianFactor(mean=y, cov=0.09, H=x), SiteFactor(None, potentials.Laplace(0.0, 0.5))])


def ordinal():
    rng, x, w = design(40, 6, seed=4)
    y = np.digitize(x @ w + rng.standard_normal(40), [-1.0, 0.5])
    return LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(x, potentials.Ordinal(y, [-1.0, 0.5]))])


def gaussian():
    _, x, w = design(20, 6, seed=5)
    return LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(x, potentials.Gaussian(x @ w, 0.5))])


def coordinates():
    sites = SiteFactor(None, potentials.Laplace([1.0, -2.0, 0.0], 0.3))
    return LatentLinearModel([GaussianFactor(cov=[1.0, 2.0, 0.5]), sites])


PROBLEMS = {
    "logistic regression": lambda: logistic(60, 8),
    "logistic regression, few data": lambda: logistic(20, 40),
    "probit process": probit_process,
    "Poisson regression": poisson,
    "robust regression": robust,
    "sparse regression, small": lambda: sparse_regression(4),
    "sparse regression": lambda: sparse_regression(20),
    "ordinal regression": ordinal,
    "Gaussian sites": gaussian,
    "independent coordinates": coordinates,
}
RIVALS = [
    "lvb",
    "mean-field",
    "gkl",
    GaussianKL(covariance="chevron", rank=2),
    AffineKL(base="skew-normal"),
    AffineKL(base="generalised-normal"),
]


def bounds(model):
    for engine in RIVALS:
        try:
            post = infer(model, engine)
        except ValueError:
            continue  # the engine says that it does not apply
        if post.evidence_kind in ("exact", "lower bound"):
            yield post.log_evidence


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
@pytest.mark.parametrize("name", PROBLEMS)
def test_within_a_tenth_of_a_nat_of_the_best_bound(name):
    model = PROBLEMS[name]()
    post = infer(model, "auto")
    found = list(bounds(model))
    assert len(found) >= 3
    assert post.log_evidence >= max(found) - 0.1
    assert post.evidence_kind in ("exact", "lower bound")
    assert post.message.startswith("auto: ")


def big(n, d, potential, filled=5):
    rng = np.random.default_rng(0)
    rows = sparse.random_array((n, d), density=filled / d, random_state=rng, format="csr")
    return LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(rows, potential(n))])


@pytest.mark.parametrize(
    ("model", "covariance", "why"),
    [
        (logistic(50, 20), "full", "a full covariance is affordable"),
        (big(3000, 3000, lambda n: potentials.Logit(np.arange(n) % 2), 20), "chevron", "H is sparse"),
        (big(3000, 3000, lambda n: potentials.StudentT(3.0, np.zeros(n)), 20), "diagonal", "not log-concave"),
        (big(3000, 500_000, lambda n: potentials.Logit(np.arange(n) % 2), 200), "diagonal", "or a chevron"),
        (big(3000, 500_000, lambda n: potentials.Logit(np.arange(n) % 2)), "full", "the precision is sparse"),
    ],
    ids=["small", "sparse", "heavy tails", "huge", "thin"],
)
def test_size_and_kind_decide(model, covariance, why):
    engine, reason = choose(model)
    assert engine.covariance == covariance
    assert why in reason


def test_auto_is_the_default():
    model = logistic(30, 3)
    assert infer(model).message == infer(model, "auto").message
