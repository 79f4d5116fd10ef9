"""The full Gaussian KL posterior of a linear model that gets more Gaussian measurements, by low-rank updates.

With the stand-ins (γ, ν) of the sites kept, k measurements t = Rw + N(0, ν²) change the Gaussian by rank k:

    G = SRᵀ,   K = ν²I + RG,   S ← S − GK⁻¹Gᵀ,   m ← m + GK⁻¹(t − Rm),   log det S ← log det S − log det(K/ν²),

which costs D²k where a factorisation costs D³ (Woodbury's identity). The bound of the Gaussian is known at every
moment, and so is what is left to gain, to second order in the metric of the Gaussian family, with g = ∂B/∂m and
A = Hᵀ(Γ − Γ̂)H:

    ½ gᵀSg + ¼ tr(ASAS)   nat.

Steps that keep S (ν ← ⟨ψ′⟩ + γx) take the first part. Only where the second is larger than the caller allows are the
stand-ins renewed, all at once, which is one factorisation and one inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack

from latlin.densities.gaussian import DenseCovariance, Gaussian
from latlin.inference.forms.projections import (
    SplitRows,
    pair_gram,
    pair_squares,
    split_rows,
    stacked_rows,
    stacked_sites,
)
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import cholesky, dot, gram
from latlin.potentials.base import ExpectedLog

#: random sign vectors for tr(ASAS)
PROBES = 16
#: share of the allowed loss up to which the mean is brought near its best, and steps at most
SHARE, MEAN_STEPS = 0.25, 5
#: renewals of the stand-ins before the caller's engine is asked again
RENEWALS = 8
#: how often a step is halved
HALVINGS = 6


class Priors(NamedTuple):
    """The sites that stay: their rows H, also split for products, and their potentials."""

    rows: Any
    split: SplitRows
    sites: Sites

    @classmethod
    def of(cls, model: LatentLinearModel) -> Priors:
        """The sites of a model."""
        rows = sparse.csr_array(stacked_rows(model))
        return cls(rows, split_rows(rows), stacked_sites(model))


class Measured(NamedTuple):
    """Measurements t = Rw + noise in units of the noise, and the upper triangle of Λ = RᵀR."""

    rows: Array
    values: Array
    gram: Array
    noise_variance: float

    @classmethod
    def of(cls, rows: Array, values: Array, noise_variance: float) -> Measured:
        """All measurements at once."""
        unit = np.sqrt(noise_variance)
        scaled = np.ascontiguousarray(rows / unit)
        return cls(scaled, values / unit, gram(scaled), noise_variance)

    def more(self, rows: Array, values: Array) -> Measured:
        """With further measurements."""
        unit = np.sqrt(self.noise_variance)
        scaled = np.ascontiguousarray(rows / unit)
        return Measured(
            np.concatenate([self.rows, scaled]),
            np.concatenate([self.values, values / unit]),
            blas.dsyrk(1.0, scaled.T, beta=1.0, c=self.gram, lower=0),
            self.noise_variance,
        )

    def residual(self, mean: Array) -> Array:
        return self.values - self.rows @ mean


@dataclass(frozen=True)
class TrackedGaussian:
    """A Gaussian with S⁻¹ = Λ + HᵀΓH and S⁻¹m = Rᵀt + Hᵀν, its covariance at hand.

    Parameters
    ----------
    priors : Priors
    measured : Measured
    parameters : SiteParameters
        γ and ν.
    mean : ndarray of shape (dim,)
    covariance : DenseCovariance
    """

    priors: Priors
    measured: Measured
    parameters: SiteParameters
    mean: Array
    covariance: DenseCovariance
    #: variances of the sites' projections
    variances: Array

    @classmethod
    def at(cls, priors: Priors, measured: Measured, parameters: SiteParameters) -> TrackedGaussian | None:
        """The Gaussian with these stand-ins, by one factorisation and one inverse; None where there is none."""
        p = pair_gram(priors.split, parameters.gamma)
        p += measured.gram
        try:
            chol = cholesky(p, overwrite=True)
        except ValueError:
            return None
        upper = lapack.dpotri(chol.factor, lower=0)[0]
        covariance = DenseCovariance(upper, -chol.log_det)
        mean = covariance.times(measured.rows.T @ measured.values + priors.rows.T @ parameters.nu)
        return cls(priors, measured, parameters, mean, covariance, pair_squares(priors.split, upper))

    @property
    def density(self) -> Gaussian:
        return Gaussian(self.mean, self.covariance)

    def append(self, rows: Array, values: Array) -> TrackedGaussian:
        """With further measurements and the same stand-ins; see the module."""
        noise = self.measured.noise_variance
        images = self.covariance.times(np.asfortranarray(rows.T))
        inner = cholesky(noise * np.eye(len(rows)) + rows @ images, name="the covariance of the measurements")
        # S − WᵀW with W = C⁻ᵀGᵀ, K = CᵀC
        half = inner.whiten(np.asfortranarray(images.T))
        upper = blas.dsyrk(-1.0, half, beta=1.0, c=self.covariance.upper, trans=1, lower=0)
        fallen = inner.log_det - len(rows) * np.log(noise)
        seen = np.asarray(self.priors.rows @ half.T)
        return replace(
            self,
            measured=self.measured.more(rows, values),
            mean=self.mean + images @ inner.solve(values - rows @ self.mean),
            covariance=DenseCovariance(upper, self.covariance.log_det - fallen),
            variances=self.variances - np.einsum("nk,nk->n", seen, seen),
        )

    @cached_property
    def x(self) -> Array:
        return np.asarray(self.priors.rows @ self.mean)

    @cached_property
    def expected(self) -> ExpectedLog:
        """Of all sites."""
        return self.priors.sites.expected_log(self.x, self.variances)

    @cached_property
    def bound(self) -> float:
        """⟨log Gaussian factors⟩ + Σ⟨ψ⟩ + entropy, with tr(ΛS) = D − Σγs²."""
        residual = self.measured.residual(self.mean)
        trace = len(self.mean) - dot(self.parameters.gamma, self.variances)
        constant = -0.5 * len(residual) * (LOG_2PI + np.log(self.measured.noise_variance))
        likelihood = constant - 0.5 * (dot(residual, residual) + trace)
        return float(likelihood + self.expected.value.sum() + self.density.entropy)

    @cached_property
    def gradient(self) -> Array:
        """∂B/∂m = Rᵀ(t − Rm) + Hᵀ⟨ψ′⟩."""
        return self.measured.rows.T @ self.measured.residual(self.mean) + self.priors.rows.T @ self.expected.d_mean

    @property
    def mean_left(self) -> float:
        """½ gᵀSg."""
        return 0.5 * dot(self.gradient, self.covariance.times(self.gradient))

    @property
    def covariance_left(self) -> float:
        """¼ tr(ASAS), estimated by random signs."""
        rows, excess = self.priors.rows, self.parameters.gamma + 2.0 * self.expected.d_var

        def times(block: Array) -> Array:
            return np.asfortranarray(rows.T @ (excess[:, None] * (rows @ self.covariance.times(block))))

        signs = np.random.default_rng(0).choice([-1.0, 1.0], (len(self.mean), PROBES))
        return 0.25 * max(float(np.mean(np.einsum("dk,dk->k", signs, times(times(signs))))), 0.0)

    def moved(self, share: float) -> TrackedGaussian:
        """ν ← ⟨ψ′⟩ + γx, so far as `share`: m ← m + S g."""
        gamma, nu = self.parameters
        towards = self.expected.d_mean + gamma * self.x
        step = share * self.covariance.times(self.gradient)
        return replace(self, parameters=SiteParameters(gamma, nu + share * (towards - nu)), mean=self.mean + step)

    def renewed(self, share: float) -> TrackedGaussian | None:
        """γ ← −2∂⟨ψ⟩/∂s², ν ← ⟨ψ′⟩ + γx, so far as `share`."""
        gamma, nu = self.parameters
        wanted = -2.0 * self.expected.d_var
        pull = self.expected.d_mean + wanted * self.x
        mixed = SiteParameters(gamma + share * (wanted - gamma), nu + share * (pull - nu))
        return self.at(self.priors, self.measured, mixed)


def follow(now: TrackedGaussian, slack: float) -> tuple[TrackedGaussian, int] | None:
    """The Gaussian brought to `slack` nat of the best, and how often stand-ins were renewed; None where it is not."""
    for renewals in range(RENEWALS + 1):
        now = _centred(now, SHARE * slack)
        if now.mean_left + now.covariance_left <= slack:
            return now, renewals
        found = _risen(now.renewed, now.bound)
        if found is None:
            return None
        now = found
    return None


def _centred(now: TrackedGaussian, allowed: float) -> TrackedGaussian:
    """By steps that keep S."""
    for _ in range(MEAN_STEPS):
        if now.mean_left <= allowed:
            break
        found = _risen(now.moved, now.bound)
        if found is None:
            break
        now = found
    return now


def _risen(step: Callable[[float], TrackedGaussian | None], bound: float) -> TrackedGaussian | None:
    """The first of ever shorter steps that raises the bound."""
    for halving in range(HALVINGS):
        found = step(0.5**halving)
        if found is not None and np.isfinite(found.bound) and found.bound > bound:
            return found
    return None
