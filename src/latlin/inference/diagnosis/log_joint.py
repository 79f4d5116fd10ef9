"""log ∏ factors of a model at many w, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator
from scipy.special import gammaln, logsumexp

from latlin.densities.density import Density, Factorised, Mixture
from latlin.densities.gaussian import Gaussian, KroneckerCovariance
from latlin.densities.precision import CovarianceWhitening, DiagonalWhitening, Whitening
from latlin.inference.forms.prior import (
    expected_log_gaussians,
    factor_precision,
    factor_whitening,
    gaussian_part,
    log_integral,
    needs_sparse,
    prior_gaussian,
    quadratic_of,
)
from latlin.inference.forms.projections import stacked_rows, stacked_sites
from latlin.inference.forms.sites import Sites
from latlin.inference.model import IN_BLOCKS, GaussianFactor, LatentLinearModel, Model, SiteFactor, require_in_memory
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import cholesky

# --- A model whose hyperparameters are integrated out: a weighted sum of latent linear models.
#
#     p(w) ∝ Σ_k weight_k p_k(w),   log Z = log Σ_k weight_k Z_k
#
# Each p_k is a product of factors with its own constants, so the weights are those of a quadrature rule times the prior
# of the hyperparameters.


class AveragedModel(LatentLinearModel):
    """Several models of the same w with weights; `gaussians` and `sites` are those of the middle one.

    Parameters
    ----------
    parts : sequence of LatentLinearModel
    log_weights : array of shape (K,)
    middle : int
        The part that stands for all where one model is asked for.
    """

    parts: tuple[Model, ...]
    log_weights: Array
    centre: Model

    def __init__(self, parts: Sequence[Model], log_weights: ArrayLike, middle: int) -> None:
        weights = np.asarray(log_weights, float)
        if weights.shape != (len(parts),):
            raise ValueError(f"log_weights must hold one number per model, got shape {weights.shape} for {len(parts)}")
        # whatever a model has, this has from its middle part
        for name, value in vars(parts[middle]).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "dim", parts[middle].dim)
        object.__setattr__(self, "parts", tuple(parts))
        object.__setattr__(self, "centre", parts[middle])
        object.__setattr__(self, "log_weights", weights)

    def __getattr__(self, name: str) -> NoReturn:
        # parts whose rows are in blocks have no factors here
        raise ValueError(IN_BLOCKS) if name in ("gaussians", "sites") else AttributeError(name)

    def __repr__(self) -> str:
        return f"AveragedModel({len(self.parts)} x {self.parts[0]!r})"


#: rows of sites in a block, and numbers that are made at a time
ROWS, MOST = 512, 2**16


class LogJoint:
    """The log joint of one model, with every constant.

    Sites are taken in blocks of rows: one product of a block with all draws, small enough to stay in cache.

    Parameters
    ----------
    model : LatentLinearModel
        A LinearOperator H is used as one, a product with some draws at a time.
    """

    def __init__(self, model: LatentLinearModel) -> None:
        self._model = model
        sites = stacked_sites(model)
        self._blocks = [
            _RowBlock(_rows_of(factor, slice(start - span.start, stop - span.start)), sites.part(slice(start, stop)))
            for factor, (span, _) in zip(model.sites, sites.blocks, strict=True)
            for start, stop in _cuts(factor, span)
        ]
        # of a prior that is normalised as a whole
        self._constant = -log_integral(model, quadratic_of(model)) if model.normalise_prior else 0.0

    def __call__(self, w: Array) -> Array:
        """log p at each row of w; −∞ where a site is, an error where a value is not a number."""
        total = np.full(len(w), self._constant)
        for gaussian in self._model.gaussians:
            width = w.shape[1] if gaussian.H is None else gaussian.H.shape[0]
            for some in _portions(len(w), width):
                total[some] += _log_gaussian(gaussian, w[some])
        for block in self._blocks:
            for some in _portions(len(w), len(block.sites)):
                total[some] += block.log_likelihoods(w[some])
        if np.any(np.isnan(total)) or np.any(total == np.inf):
            raise ValueError("the model's log density is not a number at some draws; rescale the columns of H")
        return total


class _RowBlock(NamedTuple):
    """Some rows of a site factor, and what is to be summed over them: H (None, a slice, for coordinates) and sites."""

    H: Any
    sites: Sites

    def log_likelihoods(self, w: Array) -> Array:
        """Σ_n weight_n ψ_n(h_nᵀw + o_n) at each row of w."""
        x = w[:, self.H] if isinstance(self.H, slice) else _times(self.H, w)
        return self.sites.log_density_sums(x)


def _cuts(factor: SiteFactor, span: slice) -> list[tuple[int, int]]:
    """Ends of the blocks of rows of a factor; an operator has but one."""
    step = max(span.stop - span.start, 1) if isinstance(factor.H, LinearOperator) else ROWS
    return [(start, min(start + step, span.stop)) for start in range(span.start, span.stop, step)]


def _rows_of(factor: SiteFactor, span: slice) -> Any:
    if factor.H is None:
        return span
    return factor.H if isinstance(factor.H, LinearOperator) else factor.H[span]


def _portions(count: int, width: int) -> Iterator[slice]:
    """Slices of `count` draws, of which each has `width` numbers, with some tens of thousands of numbers each."""
    step = max(MOST // max(width, 1), 1)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


class AveragedLogJoint:
    """log Σ_k weight_k p_k(w) of a model whose hyperparameters are integrated out."""

    def __init__(self, model: AveragedModel) -> None:
        self._parts = [LogJoint(require_in_memory(part)) for part in model.parts]
        self._log_weights = model.log_weights

    def __call__(self, w: Array) -> Array:
        parts = [weight + joint(w) for weight, joint in zip(self._log_weights, self._parts, strict=True)]
        return np.asarray(logsumexp(parts, axis=0))


def log_joint(model: LatentLinearModel) -> LogJoint | AveragedLogJoint:
    """The log joint of a model as a function of rows of w."""
    return AveragedLogJoint(model) if isinstance(model, AveragedModel) else LogJoint(model)


def _log_gaussian(factor: GaussianFactor, w: Array) -> Array:
    x = w if factor.H is None else _times(factor.H, w)
    grid = getattr(factor, "covariance", None)
    if isinstance(grid, KroneckerCovariance):
        return -0.5 * (grid.quadratic(x - factor.mean) + grid.log_det + grid.dim * LOG_2PI)
    if factor.precision is not None:
        precision, constant = factor_precision(factor, x.shape[1])
        deviations = x - factor.mean
        return constant - 0.5 * np.einsum("nd,dn->n", deviations, precision @ deviations.T)
    whitening = factor_whitening(factor, x.shape[1])
    root = whitening.solve(np.ascontiguousarray((x - factor.mean).T))
    return -0.5 * np.einsum("dn,dn->n", root, root) - 0.5 * x.shape[1] * LOG_2PI - whitening.log_det


def _times(matrix: Any, w: Array) -> Array:
    """Rows of w times Hᵀ."""
    if sparse.issparse(matrix) or isinstance(matrix, LinearOperator):
        return np.asarray(matrix @ w.T).T
    return w @ matrix.T


def gaussian_kl_bound(model: LatentLinearModel, density: Gaussian) -> float:
    """The bound at a Gaussian over w, with every constant."""
    marginals = density.project(stacked_rows(model))
    sites = stacked_sites(model).expected_log(marginals.mean, marginals.variance)
    if needs_sparse(model):
        return float(sites.value.sum()) + expected_log_gaussians(model, density) + density.entropy
    gaussians = sum(_expected_log_factor(factor, density) for factor in model.gaussians)
    return float(sites.value.sum()) + gaussians + density.entropy


def _expected_log_factor(factor: GaussianFactor, density: Gaussian) -> float:
    """⟨log N(Hw | μ, LLᵀ)⟩ = −½ log det(2πLLᵀ) − ½ Σ_i ⟨r_i²⟩, r = L⁻¹(Hw − μ)."""
    rows = sparse.eye_array(density.dim, format="csr") if factor.H is None else factor.H
    whitening = factor_whitening(factor, rows.shape[0])
    constant = -0.5 * rows.shape[0] * LOG_2PI - whitening.log_det
    residual = whitening.solve(rows @ density.mean - factor.mean)
    if factor.factor is None:
        # a diagonal L scales the variances
        variance = density.project(rows).variance * whitening.solve(np.ones(rows.shape[0])) ** 2
    else:
        dense = rows.toarray() if sparse.issparse(rows) else rows
        variance = density.project(np.ascontiguousarray(whitening.solve(dense))).variance
    return constant - 0.5 * float(residual @ residual + variance.sum())


# --- Where a posterior is checked from: its own draws, wider copies with heavy tails, and the prior.
#
# A copy is the multivariate t with the posterior's mean and covariance, stretched; the prior is the Gaussian of the
# factors on w itself, where there is one. Draws are made a block at a time from seeds, so that a second pass sees the
# same ones and nothing of size n×D is kept.


#: shares of the draws: the posterior, a near copy, a far copy, the prior
SHARES = (0.5, 0.2, 0.15, 0.15)
#: degrees of freedom and stretch of the copies
NEAR, FAR = (3.0, 1.5), (1.0, 3.0)


class DiagnosedPosterior(Protocol):
    """A posterior as a diagnosis sees it; `latlin.Posterior` is one."""

    @property
    def model(self) -> Model: ...

    @property
    def density(self) -> Density: ...

    @property
    def log_evidence(self) -> float: ...

    @property
    def evidence_kind(self) -> str: ...

    @property
    def bound_error(self) -> float: ...

    @property
    def evidence_term(self) -> object: ...

    @property
    def converged(self) -> bool: ...

    @property
    def caution(self) -> tuple[str, str] | None: ...

    @property
    def names(self) -> tuple[str, ...] | None: ...

    @property
    def mean(self) -> Array: ...

    @property
    def variance(self) -> Array: ...

    def covariance(self) -> Array: ...


class Proposal(Protocol):
    """Something to draw from."""

    def sample(self, count: int, rng: np.random.Generator) -> Array: ...

    def logpdf(self, w: Array) -> Array: ...


class ProposalCovariance(Protocol):
    """A covariance S: draws of N(0, S), δᵀS⁻¹δ, log det S."""

    @property
    def log_det(self) -> float: ...

    def draw(self, count: int, rng: np.random.Generator) -> Array: ...

    def quadratic(self, deviations: Array) -> Array: ...


@dataclass(frozen=True)
class WhitenedSpread:
    """S = LLᵀ."""

    whitening: Whitening
    dim: int

    @property
    def log_det(self) -> float:
        return 2.0 * self.whitening.log_det

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        return self.whitening.apply(rng.standard_normal((self.dim, count))).T

    def quadratic(self, deviations: Array) -> Array:
        root = self.whitening.solve(np.ascontiguousarray(deviations.T))
        return np.einsum("dn,dn->n", root, root)


@dataclass(frozen=True)
class Own:
    """The posterior's density."""

    density: Density

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        return self.density.sample(count, rng)

    def logpdf(self, w: Array) -> Array:
        return self.density.logpdf(w)


@dataclass(frozen=True)
class StretchedT:
    """Multivariate t with `df` degrees of freedom and scale matrix stretch²·S."""

    mean: Array
    spread: ProposalCovariance
    df: float
    stretch: float

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        tail = self.stretch / np.sqrt(rng.chisquare(self.df, count) / self.df)
        return self.mean + tail[:, None] * self.spread.draw(count, rng)

    def logpdf(self, w: Array) -> Array:
        d, nu = getattr(self.spread, "degrees", len(self.mean)), self.df
        square = self.spread.quadratic(w - self.mean) / self.stretch**2
        constant = gammaln(0.5 * (nu + d)) - gammaln(0.5 * nu) - 0.5 * d * np.log(nu * np.pi)
        constant -= 0.5 * self.spread.log_det + d * np.log(self.stretch)
        return constant - 0.5 * (nu + d) * np.log1p(square / nu)


@dataclass(frozen=True)
class PriorProposal:
    """N(mean, S)."""

    mean: Array
    spread: ProposalCovariance

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        return self.mean + self.spread.draw(count, rng)

    def logpdf(self, w: Array) -> Array:
        return -0.5 * (self.spread.quadratic(w - self.mean) + self.spread.log_det + len(self.mean) * LOG_2PI)


@dataclass(frozen=True)
class ProposalDraws:
    """Draws from several proposals with fixed shares, repeatable block by block.

    Parameters
    ----------
    proposals : tuple of Proposal
        The posterior first.
    counts : tuple of int
    seeds : tuple of ndarray
        One per block of each proposal.
    block : int
        Draws in a block.
    """

    proposals: tuple[Proposal, ...]
    counts: tuple[int, ...]
    seeds: tuple[NDArray[np.int64], ...]
    block: int

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def shares(self) -> Array:
        return np.array(self.counts) / self.total

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """(where, draws), those of the posterior first."""
        start = 0
        for proposal, count, seeds in zip(self.proposals, self.counts, self.seeds, strict=True):
            for i, seed in enumerate(seeds):
                size = min(self.block, count - i * self.block)
                yield slice(start, start + size), proposal.sample(size, np.random.default_rng(seed))
                start += size

    def own_blocks(self) -> Iterator[tuple[slice, Array]]:
        """The posterior's own draws again."""
        return islice(self.blocks(), len(self.seeds[0]))

    def log_components(self, w: Array) -> Array:
        """Log densities of the proposals at rows of w: (rows, proposals)."""
        return np.stack([proposal.logpdf(w) for proposal in self.proposals], axis=1)


def plan_draws(posterior: DiagnosedPosterior, count: int, rng: np.random.Generator, block: int) -> ProposalDraws:
    """The proposals for a posterior, and their shares of `count` draws."""
    spread, mean = _spread(posterior.density), posterior.mean
    proposals: list[Proposal] = [
        Own(posterior.density),
        StretchedT(mean, spread, *NEAR),
        StretchedT(mean, spread, *FAR),
    ]
    shares = list(SHARES)
    prior = _prior(require_in_memory(posterior.model))
    if prior is None:
        shares = [*SHARES[:2], SHARES[2] + SHARES[3]]
    else:
        proposals.append(prior)
    counts = [int(share * count) for share in shares]
    counts[0] += count - sum(counts)
    seeds = tuple(rng.integers(2**62, size=-(-own // block)) for own in counts)
    return ProposalDraws(tuple(proposals), tuple(counts), seeds, block)


def _prior(model: LatentLinearModel) -> Proposal | None:
    """The Gaussian factors as a proposal, where they make a density."""
    if needs_sparse(model):
        found = prior_gaussian(model)
        return None if found is None else Own(found[0])
    part = gaussian_part(model)
    return None if part.whitening is None else PriorProposal(part.mean, WhitenedSpread(part.whitening, model.dim))


def _spread(density: Density) -> ProposalCovariance:
    if isinstance(density, Mixture):
        middle = density.components[int(np.argmax(density.weights))]
        # constraints leave no full covariance: the heaviest part stands for all
        if isinstance(middle, Gaussian) and middle.degrees < middle.dim:
            return middle.structure
    if isinstance(density, Gaussian):
        return density.structure
    if isinstance(density, Factorised):
        return WhitenedSpread(DiagonalWhitening(np.sqrt(density.variance)), density.dim)
    factor = cholesky(np.asfortranarray(density.covariance()), name="the posterior's covariance").factor
    return WhitenedSpread(CovarianceWhitening(factor), len(factor))
