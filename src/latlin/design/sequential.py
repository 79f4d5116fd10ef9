"""Sequential design: which linear measurement of w to take next.

A signal w with sparse filter responses Bw is measured, y = Mw + N(0, ν²), or an answer y of any family depends on Mw.
The posterior given the measurements so far says where w is least known, and there the next measurement looks. The
information gain ½ log det(I + M S Mᵀ/ν²) of k orthonormal rows is largest when they are the leading eigenvectors of S,
Challis (2013), eq. 5.4.2; small covariances are decomposed, others by Lanczos' method on products.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from latlin.densities.gaussian import Gaussian
from latlin.design.directions import covariance_operator, expected_information, greedy_rows, leading_directions
from latlin.design.updates import Measured, Priors, TrackedGaussian, follow
from latlin.inference.engine import Engine
from latlin.inference.evidence.terms import ExpectedEvidence
from latlin.inference.gaussian_kl.covariances import Full
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import infer, resolve
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_list, check_matrix, check_number, check_whole
from latlin.potentials.base import Potential

# --- Linear filters whose responses are sparse in signals and images: finite differences and orthonormal wavelets.
#
# Challis (2013), §5.4 puts Laplace priors on both. Signals and images are flattened row by row (C order).


ROOT3 = np.sqrt(3.0)
#: Daubechies' scaling filter with four taps and two vanishing moments
TAPS = np.array([1.0 + ROOT3, 3.0 + ROOT3, 3.0 - ROOT3, 1.0 - ROOT3]) / (4.0 * np.sqrt(2.0))


def finite_differences(shape: int | Sequence[int]) -> sparse.csr_array:
    """Differences of neighbours along every axis of a signal or image; one row a pair of neighbours.

    >>> finite_differences(4).toarray().astype(int).tolist()
    [[-1, 1, 0, 0], [0, -1, 1, 0], [0, 0, -1, 1]]
    >>> finite_differences((64, 64)).shape
    (8064, 4096)
    """
    sizes = _sizes(shape)
    blocks = []
    for axis, size in enumerate(sizes):
        if size < 2:
            continue
        step = sparse.diags_array([-np.ones(size - 1), np.ones(size - 1)], offsets=[0, 1], shape=(size - 1, size))
        parts = [step if i == axis else sparse.eye_array(other) for i, other in enumerate(sizes)]
        blocks.append(reduce(_kron, parts))
    if not blocks:
        raise ValueError(f"shape must have an axis of at least 2, got {tuple(sizes)}")
    return sparse.csr_array(sparse.vstack(blocks, format="csr"))


def wavelet_transform(shape: int | Sequence[int], levels: int | None = None) -> sparse.csr_array:
    """Orthonormal periodic wavelet transform with Daubechies' four-tap filter (PyWavelets calls it db2).

    Parameters
    ----------
    shape : int or sequence of int
        Of the signal or image; axes are transformed one after the other at every level.
    levels : int, optional
        By default as many as the sizes can be halved while they stay at least 4.

    Returns
    -------
    csr_array of shape (size, size)
        Coarse responses first, then details from coarse to fine.

    Examples
    --------
    >>> W = wavelet_transform(16)
    >>> bool(abs((W @ W.T - sparse.eye_array(16)).toarray()).max() < 1e-14)
    True
    """
    sizes = _sizes(shape)
    deepest = _deepest(sizes)
    depth = deepest if levels is None else check_whole("levels", levels)
    if not 0 <= depth <= deepest:
        raise ValueError(f"levels must lie between 0 and {deepest} for shape {tuple(sizes)}, got {levels!r}")
    coarse, details = sparse.csr_array(sparse.eye_array(int(np.prod(sizes)))), []
    for _ in range(depth):
        both = reduce(_kron, [_one_level(size) for size in sizes]) @ coarse
        low = reduce(np.logical_and.outer, [np.arange(size) < size // 2 for size in sizes]).ravel()
        details.append(both[np.flatnonzero(~low)])
        coarse = both[np.flatnonzero(low)]
        sizes = [size // 2 for size in sizes]
    return sparse.csr_array(sparse.vstack([coarse, *details[::-1]], format="csr"))


def _one_level(size: int) -> sparse.csr_array:
    """Averages Σ_j h_j x_{2k+j}, then details with g_j = (−1)^j h_{3−j}, indices modulo the size."""
    rows = np.repeat(np.arange(size // 2), 4)
    columns = (2 * rows + np.tile(np.arange(4), size // 2)) % size
    mirrored = TAPS[::-1] * np.array([1.0, -1.0, 1.0, -1.0])
    values = np.concatenate([np.tile(TAPS, size // 2), np.tile(mirrored, size // 2)])
    places = (np.concatenate([rows, rows + size // 2]), np.concatenate([columns, columns]))
    return sparse.csr_array(sparse.coo_array((values, places), shape=(size, size)))


def _deepest(sizes: Sequence[int]) -> int:
    depth = 0
    while all(size % 2 ** (depth + 1) == 0 and size // 2**depth >= 4 for size in sizes):
        depth += 1
    return depth


def _kron(a: sparse.sparray, b: sparse.sparray) -> sparse.csr_array:
    return sparse.csr_array(sparse.kron(a, b, format="csr"))


def _sizes(shape: int | Sequence[int]) -> list[int]:
    sizes = [check_whole("shape", size, 1) for size in ([shape] if np.ndim(shape) == 0 else shape)]  # type: ignore[union-attr]
    if not sizes:
        raise ValueError(f"shape must hold positive sizes, got {shape!r}")
    return sizes


class SequentialDesign:
    """Chooses the next measurements of a sparse signal by what the posterior does not know yet.

    Parameters
    ----------
    filters : matrix, sparse matrix, LinearOperator, None, or a sequence of these
        B: rows whose responses are sparse; None is the identity. See `finite_differences` and `wavelet_transform`.
    prior : Potential, or a sequence with one per filter
        Of the responses, such as `potentials.Laplace(scale=0.1)`.
    noise_variance : float, optional
        ν² of a measurement; either this or `likelihood`.
    likelihood : Potential, optional
        The family of the answers when they are not numbers with Gaussian noise: `potentials.Logit(1)` for yes and no,
        `potentials.Poisson(0)` for counts; its own observation plays no role. `suggest` then chooses among candidates.
    engine : str or engine
        Whose Gaussian posterior drives the design: "gkl", "lvb", `ExpectationPropagation(power=0.9)`, or for large
        images `GaussianKL(covariance="chevron", rank=80)` and `LocalBound(variances="lanczos", rank=80)`.
    dim : int, optional
        Length of w, needed when no filter says it.
    slack : float, optional
        For full Gaussian KL and Gaussian noise: nat of the bound that a posterior may leave to be gained. New
        measurements then change the posterior by low-rank updates, D² operations each, and the stand-ins of the
        sites are renewed only when more than this is left, by an estimate of second order. Without it every
        posterior is fitted to the tolerance of the engine.
    verbose : bool

    Attributes
    ----------
    posterior : Posterior
        Given the measurements so far. Its evidence leaves out the normalisation of the prior on the responses.
    reconstruction, uncertainty : ndarray of shape (dim,)
        Posterior mean and standard deviations of w.
    measurements, observations : ndarray of shape (n, dim) and (n,)

    Examples
    --------
    >>> from latlin import potentials
    >>> rng = np.random.default_rng(0)
    >>> signal = rng.laplace(scale=0.2, size=32)
    >>> design = SequentialDesign(None, potentials.Laplace(scale=0.2), noise_variance=0.005, dim=32)
    >>> for _ in range(4):
    ...     M = design.suggest(4)
    ...     design = design.observe(M, M @ signal + np.sqrt(0.005) * rng.standard_normal(4))
    >>> design.measurements.shape, bool(design.uncertainty.mean() < 0.28)
    ((16, 32), True)
    """

    def __init__(
        self,
        filters: Any,
        prior: Potential | Sequence[Potential],
        noise_variance: float | None = None,
        *,
        likelihood: Potential | None = None,
        engine: str | Engine = "gkl",
        dim: int | None = None,
        slack: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.noise_variance = (
            None if noise_variance is None else check_number("noise_variance", noise_variance, above=0.0)
        )
        self.likelihood = likelihood
        _check_answers(noise_variance, likelihood)
        self.slack = None if slack is None else check_number("slack", slack, above=0.0)
        dim = None if dim is None else check_whole("dim", dim, 1)
        self.engine, self.verbose = resolve(engine), verbose
        factors = _site_factors(filters, prior)
        self.dim = _dimension(factors, dim)
        self._priors = [f if f.dim else SiteFactor(sparse.eye_array(self.dim), f.potential) for f in factors]
        self.measurements, self.observations = np.zeros((0, self.dim)), np.zeros(0)
        self._fitted: Posterior | None = None
        self._stale = True
        self._tracked: TrackedGaussian | None = None
        if self.slack is not None:
            _check_updates(self.engine, likelihood)

    def observe(self, M: ArrayLike, y: ArrayLike) -> Self:
        """Add measurements; the posterior follows when it is next asked for, started from the one before.

        Parameters
        ----------
        M : array of shape (k, dim), or (dim,) for one
        y : array of shape (k,), or a number
        """
        rows, values = self._rows(M, "M"), np.atleast_1d(np.asarray(y, float))
        if values.shape != (len(rows),) or not np.all(np.isfinite(values)):
            raise ValueError(f"y must hold {len(rows)} finite numbers, one per row of M, got shape {values.shape}")
        if self.likelihood is not None:
            self.likelihood.observe(values)
        self.measurements = np.concatenate([self.measurements, rows])
        self.observations = np.concatenate([self.observations, values])
        self._stale = True
        return self

    def suggest(self, k: int = 1, candidates: ArrayLike | None = None) -> Array:
        """The k measurements of largest information gain, one per row.

        Parameters
        ----------
        k : int
        candidates : array of shape (n, dim), optional
            Rows to choose from, each the best given those before; without them any unit-norm rows may be chosen, and
            the leading eigenvectors of the posterior covariance are.
        """
        if k != int(k) or not 1 <= k <= self.dim:
            raise ValueError(f"k must be an integer between 1 and {self.dim}, got {k!r}")
        if candidates is None:
            if self.likelihood is not None:
                raise ValueError(
                    "candidates must be given with a likelihood: the information of an answer depends on what is "
                    "expected, so no direction is best"
                )
            return leading_directions(self._density, int(k))
        rows = self._rows(candidates, "candidates")
        if len(rows) < k:
            raise ValueError(f"candidates must have at least k = {k} rows, got {len(rows)}")
        return rows[greedy_rows(self._density, rows, self._gain, int(k))]

    def information_gain(self, M: ArrayLike) -> Array:
        """What the answer to each row x tells about w, in nat: ½ log(1 + xᵀSx/ν²), (5.4.2), for Gaussian noise.

        For other families the mutual information of the answer and xᵀw.
        """
        projected = self._density.project(self._rows(M, "M"))
        return self._gain(projected.mean, projected.variance)

    def _gain(self, mean: Array, variance: Array) -> Array:
        if self.likelihood is not None:
            return expected_information(self.likelihood, mean, variance)
        assert self.noise_variance is not None  # one of both is given
        return 0.5 * np.log1p(variance / self.noise_variance)

    def joint_information_gain(self, M: ArrayLike) -> float:
        """½ log det(I + M S Mᵀ/ν²) of all rows together, in nat; for Gaussian noise."""
        if self.noise_variance is None:
            raise ValueError("joint_information_gain is for Gaussian noise; use information_gain for single answers")
        rows = self._rows(M, "M")
        inner = rows @ covariance_operator(self._density).matmat(np.ascontiguousarray(rows.T)) / self.noise_variance
        return 0.5 * float(np.linalg.slogdet(np.eye(len(rows)) + 0.5 * (inner + inner.T))[1])

    @property
    def posterior(self) -> Posterior:
        """Given the measurements so far."""
        if self._stale or self._fitted is None:
            updated = self._updated() if self.slack is not None else None
            fitted = updated or infer(self.model, self.engine, start=self._fitted, verbose=self.verbose)
            self._fitted, self._stale = fitted, False
            if self.slack is not None and updated is None:
                self._tracked = self._track(fitted)
        return self._fitted

    def _updated(self) -> Posterior | None:
        """The last posterior with the measurements since, or None where it has to be fitted."""
        started, tracked = time.perf_counter(), self._tracked
        if tracked is None or self.slack is None:
            return None
        known = len(tracked.measured.values)
        if known < len(self.observations):
            tracked = tracked.append(self.measurements[known:], self.observations[known:])
        found = follow(tracked, self.slack)
        if found is None:
            return None
        self._tracked, renewals = found
        return Posterior(
            model=self.model,
            density=self._tracked.density,
            log_evidence=self._tracked.bound,
            evidence_kind="lower bound",
            engine=self.engine.name,
            converged=True,
            n_iter=renewals,
            trace=np.array([self._tracked.bound]),
            elapsed=time.perf_counter() - started,
            message=f"updated by low rank; stand-ins renewed {renewals} times, about {self.slack:g} nat left or less",
            sites=self._tracked.parameters,
            evidence_term=ExpectedEvidence(),
        )

    def _track(self, fitted: Posterior) -> TrackedGaussian | None:
        if fitted.sites is None or not len(self.observations):
            return None
        priors = Priors.of(LatentLinearModel(self._priors))
        measured = Measured.of(self.measurements, self.observations, float(self.noise_variance or 1.0))
        return TrackedGaussian.at(priors, measured, fitted.sites)

    @property
    def model(self) -> LatentLinearModel:
        """The measurements, N(y | Mw, ν²I) or sites of the likelihood, and the priors on the filters' responses."""
        if not len(self.observations):
            return LatentLinearModel(self._priors)
        return LatentLinearModel([self._answers, *self._priors])

    @property
    def _answers(self) -> GaussianFactor | SiteFactor:
        if self.likelihood is not None:
            return SiteFactor(self.measurements, self.likelihood.observe(self.observations))
        return GaussianFactor(self.observations, self.noise_variance, H=self.measurements)

    @property
    def reconstruction(self) -> Array:
        """Posterior mean of w."""
        return self.posterior.mean

    @property
    def uncertainty(self) -> Array:
        """Posterior standard deviations of w."""
        return np.sqrt(self.posterior.variance)

    @property
    def _density(self) -> Gaussian:
        density = self.posterior.density
        if not isinstance(density, Gaussian):
            raise ValueError(f"design needs a Gaussian posterior, and that of engine {self.posterior.engine!r} is none")
        return density

    def _rows(self, value: ArrayLike, name: str) -> Array:
        return np.asarray(check_matrix(np.atleast_2d(np.asarray(value, float)), name, self.dim))


def _check_answers(noise_variance: float | None, likelihood: Potential | None) -> None:
    if (noise_variance is None) == (likelihood is None):
        raise ValueError("noise_variance or likelihood must be given, and not both")
    if likelihood is not None and not isinstance(likelihood, Potential):
        raise ValueError(f"likelihood must be a potential such as potentials.Logit(1), got {likelihood!r}")


def _check_updates(engine: Engine, likelihood: Potential | None) -> None:
    full = isinstance(engine, GaussianKL) and isinstance(engine.structure, Full) and engine.components == 1
    if not full or likelihood is not None:
        raise ValueError("slack is for full Gaussian KL (engine='gkl') and Gaussian noise (noise_variance)")


def _site_factors(filters: Any, prior: Potential | Sequence[Potential]) -> list[SiteFactor]:
    matrices = list(filters) if isinstance(filters, list | tuple) else [filters]
    priors = [prior] * len(matrices) if isinstance(prior, Potential) else check_list("prior", prior, "potentials")
    if not matrices:
        raise ValueError("filters must be a matrix or a list of matrices, got none")
    if len(priors) != len(matrices):
        raise ValueError(
            f"prior must be one potential or one per filter, got {len(priors)} for {len(matrices)} filters"
        )
    try:
        return [SiteFactor(matrix, potential) for matrix, potential in zip(matrices, priors, strict=True)]
    except ValueError as error:
        raise ValueError(f"filters and prior must go together: {error}") from error


def _dimension(factors: list[SiteFactor], dim: int | None) -> int:
    known = {factor.dim for factor in factors if factor.dim is not None} | ({dim} if dim is not None else set())
    if len(known) != 1:
        raise ValueError(f"filters and dim must agree on the length of w, got {sorted(known) or 'nothing'}")
    return int(known.pop())
