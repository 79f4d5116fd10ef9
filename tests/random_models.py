"""Hypothesis strategies for models: any factors, potentials, shapes, scales, weights, offsets and kinds of rows."""

import warnings
from typing import NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from latlin import ConvergenceWarning, GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials

ENGINES = {
    "map": engines.MAP(),
    "laplace": engines.Laplace(),
    "mean-field": engines.MeanField(),
    "lvb": engines.LocalBound(),
    # what is tested holds for fits that have not converged too, and the double loop may take seconds
    "ep": engines.ExpectationPropagation(double_loop=20),
    "gkl": engines.GaussianKL(),
    "diagonal": engines.GaussianKL(covariance="diagonal"),
    "chevron": engines.GaussianKL(covariance="chevron", rank=1),
}
CONCAVE = ("logit", "probit", "poisson", "ordinal", "gaussian", "laplace", "logistic", "box")
OTHERS = ("student", "cauchy", "mixture", "power", "step", "custom")
KINDS_OF_ROWS = {"dense": np.asarray, "sparse": sparse.csr_array, "operator": aslinearoperator}
PRIORS = ("scalar", "diagonal", "full", "two", "thin", "laplace", "student", "spike")


def part(share):
    """So many of the profile's examples, for what costs more than one small fit."""
    return settings(max_examples=max(int(share * settings.default.max_examples), 1))


def potential(family, y, scale):
    """A block of sites for observations y of that scale."""
    makers = {
        "logit": lambda: potentials.Logit(y > 0),
        "probit": lambda: potentials.Probit(y > 0),
        "poisson": lambda: potentials.Poisson(np.round(np.minimum(np.abs(y), 50.0))),
        "ordinal": lambda: potentials.Ordinal(np.clip(np.round(y + 1), 0, 2), [-0.5, 0.8]),
        "gaussian": lambda: potentials.Gaussian(y, scale),
        "laplace": lambda: potentials.Laplace(y, scale),
        "logistic": lambda: potentials.Logistic(y, scale),
        "box": lambda: potentials.GeneralisedNormal(3.0, y, scale),
        "student": lambda: potentials.StudentT(3.0, y, scale),
        "cauchy": lambda: potentials.Cauchy(y, scale),
        "mixture": lambda: potentials.GaussianMixture([0.7, 0.3], 0.0, [0.1 * scale, scale]),
        "power": lambda: potentials.GeneralisedNormal(0.7, y, scale),
        "step": lambda: potentials.Step(y > 0, 0.05),
        "custom": lambda: potentials.Custom(log_sigmoid),
    }
    return makers[family]()


def log_sigmoid(x):
    return -np.logaddexp(0.0, -x)


class Parts(NamedTuple):
    """What a model is made of, so that it can be written down in another way."""

    family: str
    rows: np.ndarray
    y: np.ndarray
    scale: float
    weight: np.ndarray | float | None
    offset: np.ndarray | float | None
    prior: str
    mean: np.ndarray
    variances: np.ndarray
    half: np.ndarray

    def model(self, kind="dense"):
        """The model, with its rows as an array, a sparse matrix or an operator."""
        sites = potential(self.family, self.y, self.scale)
        rows = SiteFactor(KINDS_OF_ROWS[kind](self.rows), sites, weight=self.weight, offset=self.offset)
        return LatentLinearModel([rows, *self.priors()])

    def priors(self):
        widest, d = float(self.variances.max()), len(self.mean)
        spread = widest**0.5
        sparse_priors = {
            "laplace": potentials.Laplace(np.zeros(d), spread),
            "student": potentials.StudentT(3.0, np.zeros(d), spread),
            "spike": potentials.GaussianMixture([0.5, 0.5], np.zeros(2), [0.01 * spread, spread]),
        }
        if self.prior in sparse_priors:
            return [SiteFactor(None, sparse_priors[self.prior])]
        if self.prior == "full":
            cov = (
                np.sqrt(self.variances)[:, None] * (self.half @ self.half.T + 0.1 * np.eye(d)) * np.sqrt(self.variances)
            )
            return [GaussianFactor(self.mean, cov)]
        if self.prior == "thin":
            # fewer rows than coordinates: proper only with the Laplace sites beside it
            thin = GaussianFactor(self.mean[:1], widest, H=self.half[:1])
            return [thin, SiteFactor(None, sparse_priors["laplace"])]
        plain = GaussianFactor(cov=widest if self.prior == "scalar" else self.variances, dim=d)
        return [plain, GaussianFactor(self.mean, self.variances, H=self.half)] if self.prior == "two" else [plain]

    def permuted(self, rows, columns):
        """The same with rows and columns in another order."""

        def moved(values):
            return values[rows] if isinstance(values, np.ndarray) else values

        half = self.half[columns][:, columns] if self.prior == "two" else self.half[columns]
        if self.prior == "thin":
            half = self.half[:, columns]
        return self._replace(
            rows=self.rows[rows][:, columns],
            y=self.y[rows],
            weight=moved(self.weight),
            offset=moved(self.offset),
            mean=self.mean if self.prior == "thin" else self.mean[columns],
            variances=self.variances[columns],
            half=half,
        )


@st.composite
def parts(draw, families=CONCAVE + OTHERS, priors=PRIORS, widest=3.0):
    """Parts of any model; numbers from a generator, so that shrinking stays simple.

    Rows are of a size within 10^±widest, scales and prior variances within 10^±⅔widest.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, n = draw(st.integers(1, 4)), draw(st.integers(1, 7))
    size, scale, spread = (10.0 ** draw(st.floats(-wide, wide)) for wide in (widest, 2 * widest / 3, 2 * widest / 3))
    rows = rng.normal(size=(n, d)) * size * (rng.random((n, d)) < 0.8)
    y = rng.normal(size=n) * draw(st.sampled_from([0.0, 1.0, 20.0]))
    weight = draw(st.sampled_from([None, 0.5, 2.0, "many"]))
    offset = draw(st.sampled_from([None, 0.3, "many"]))
    return Parts(
        draw(st.sampled_from(families)),
        rows,
        y,
        scale,
        # a weight of nothing is a site that is not there
        rng.integers(0, 3, n).astype(float) if weight == "many" else weight,
        rng.normal(size=n) if offset == "many" else offset,
        draw(st.sampled_from(priors)),
        rng.normal(size=d),
        np.full(d, spread) if draw(st.booleans()) else spread * rng.uniform(0.5, 2.0, d),
        rng.normal(size=(d, d)),
    )


def attempt(model, engine):
    """The posterior, or None after a refusal in words; any other exception or warning fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return infer(model, engine)
        except ValueError as error:
            refusal = str(error)
    assert len(refusal) > 20, refusal
    return None


def assert_finite(post):
    """Moments, evidence and message are there and are numbers."""
    assert np.all(np.isfinite(post.mean))
    assert np.all(np.isfinite(post.variance))
    assert np.all(post.variance >= 0.0)
    assert np.isfinite(post.log_evidence) or post.evidence_kind == "none"
    assert np.all(np.isfinite(post.trace))
    assert post.message
