"""Where a posterior is checked from: its own draws, wider copies with heavy tails, and the prior.

A copy is the multivariate t with the posterior's mean and covariance, stretched; the prior is the Gaussian of the
factors on w itself, where there is one. Draws are made a block at a time from seeds, so that a second pass sees the
same ones and nothing of size n×D is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from latlin.densities.density import Density, Factorised
from latlin.densities.gaussian import Gaussian
from latlin.densities.mixture import Mixture
from latlin.densities.precision import CovarianceWhitening, DiagonalWhitening, Whitening
from latlin.inference.evidence.terms import EvidenceTerm
from latlin.inference.forms.prior import gaussian_part, needs_sparse, prior_gaussian
from latlin.inference.model import LatentLinearModel, Model, in_memory
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import cholesky

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
    def evidence_term(self) -> EvidenceTerm | None: ...

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

    density: Any

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


def draws_for(posterior: DiagnosedPosterior, count: int, rng: np.random.Generator, block: int) -> ProposalDraws:
    """The proposals for a posterior, and their shares of `count` draws."""
    spread, mean = _spread(posterior.density), posterior.mean
    proposals: list[Proposal] = [
        Own(posterior.density),
        StretchedT(mean, spread, *NEAR),
        StretchedT(mean, spread, *FAR),
    ]
    shares = list(SHARES)
    prior = _prior(in_memory(posterior.model))
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


def _spread(density: Any) -> ProposalCovariance:
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
