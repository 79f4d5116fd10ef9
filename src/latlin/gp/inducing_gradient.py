"""The gradient of the bound of inducing points, in every parameter and in the inducing inputs, in one pass.

At the optimum only the explicit dependence on parameters and inducing inputs counts (envelope theorem); with
g_n = ∂bound/∂h_n = a_n m + 2b_n(S − I)h_n, a_n and b_n the derivatives of ⟨log φ_n⟩ in mean and variance,

    ∂bound/∂k_u(x_n) = L⁻ᵀg_n,   ∂bound/∂k(x_n, x_n) = b_n,   ∂bound/∂K_uu = −L⁻ᵀ Φ(Σ_n g_n h_nᵀ) L⁻¹, symmetrised,

where Φ keeps the lower triangle and halves the diagonal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latlin.distributed.blocks import Block, LocalBlocks, add, combine_pairwise, side_by_side, slices, widen_rows
from latlin.gp.inducing_model import PIECE, Basis, InducingFunction, KernelRows, kernel_parts
from latlin.gp.kernel_gradients import pull, pull_diagonal
from latlin.inference.blocks import Observed
from latlin.inference.evidence.gradient import parameter_gradients
from latlin.inference.evidence.terms import ExpectedTerm
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.numerics.arrays import Array, empty_array
from latlin.numerics.linalg import gram, symmetrise


class RowSlopes(NamedTuple):
    """Sums over rows, of which the gradient is made, and the stand-ins of every row.

    Parameters
    ----------
    theta, inputs : ndarray
        Gradients by cross kernels, in the kernel's parameters and in Z.
    diagonal : ndarray
        Gradient by k(x_n, x_n) in the kernel's parameters.
    pulled, bent : ndarray of shape (M,) and (M, M)
        Σ a_n h_n and Σ b_n h_n h_nᵀ, its upper triangle.
    likelihood : tuple of ndarray
        Gradients in the likelihood's parameters.
    stand_ins : ndarray of shape (2, n)
        γ and ν, counted from the prior mean.
    """

    theta: Array
    inputs: Array
    diagonal: Array
    pulled: Array
    bent: Array
    likelihood: tuple[Any, ...]
    stand_ins: Array

    def joined(self, other: RowSlopes) -> RowSlopes:
        """Of both sets of rows, these first."""
        stand_ins = np.concatenate([self.stand_ins, other.stand_ins], axis=1)
        theta, inputs, diagonal, pulled, bent = add(self[:5], other[:5])
        likelihood = add(self.likelihood, other.likelihood)
        return RowSlopes(theta, inputs, diagonal, pulled, bent, likelihood, stand_ins)


def slopes_of(block: Block, reading: KernelRows, m: Array, excess: Array, names: tuple[str, ...]) -> RowSlopes:
    """The slopes of a block; `excess` is S − I."""
    shared = (reading.basis, m, excess, excess @ reading.basis.root.T, names)
    parts = kernel_parts(block, reading)
    return combine_pairwise((_slopes(widen_rows(part.X), reading(part), *shared) for part in parts), RowSlopes.joined)


def held_slopes(
    whole: Block,
    reading: KernelRows,
    rows: SiteFactor,
    m: Array,
    excess: Array,
    names: tuple[str, ...],
    sites: SiteParameters | None = None,
) -> RowSlopes:
    """The slopes of all rows, whose h_n are in memory, and whose stand-ins may be known."""
    shared = (reading.basis, m, excess, excess @ reading.basis.root.T, names)
    spans = list(slices(whole.n_rows, PIECE))
    potential, offset, extra = rows.potential, rows.offset, rows.extra_variance
    assert offset is not None  # `model_of` gives it
    assert extra is not None

    def found(span: slice) -> RowSlopes:
        shift = np.broadcast_to(offset, span.stop - span.start)
        here = Observed(rows.H[span], potential.select(span), None, shift, extra[span])
        known = None if sites is None or names else SiteParameters(*(part[span] for part in sites))
        return _slopes(widen_rows(whole.X[span]), here, *shared, known)

    return combine_pairwise(side_by_side(found, spans, len(spans)), RowSlopes.joined)


def _slopes(
    X: Array,
    observed: Observed,
    basis: Basis,
    m: Array,
    excess: Array,
    outer: Array,
    names: tuple[str, ...],
    known: SiteParameters | None = None,
) -> RowSlopes:
    h, sites = observed.rows, observed.sites
    x = h @ m
    if known is not None:
        return RowSlopes(
            *kernel_slopes(X, h, known.nu - known.gamma * x, -0.5 * known.gamma, basis, m, outer), (), np.stack(known)
        )
    variance = np.maximum(basis.setting.diagonal(X) + np.einsum("nm,nm->n", h, h @ excess), 0.0)
    at = x + sites.offset
    a, b = observed.potential.expected_log(at, variance)[1:]
    here = ExpectedTerm(at, variance, sites.weight)
    found = parameter_gradients(here, observed.potential, slice(0, len(at)), sites.weight) if names else {}
    template = basis.setting.likelihood.template
    vectors = {name: np.ndim(template.value_of(name)) for name in names}
    return RowSlopes(
        *kernel_slopes(X, h, a, b, basis, m, outer),
        tuple(found[name] if vectors[name] else np.sum(found[name]) for name in names),
        np.stack([-2.0 * b, a - 2.0 * b * x]),
    )


def kernel_slopes(
    X: Array, h: Array, a: Array, b: Array, basis: Basis, m: Array, outer: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The first five sums of `RowSlopes`, from ∂⟨log φ_n⟩ in mean and variance; `outer` is (S − I)L⁻¹."""
    kernel, amplitude = basis.setting.kernel, basis.setting.amplitude**2
    # L⁻ᵀg_n = a_n L⁻ᵀm + 2b_n L⁻ᵀ(S − I)h_n, one per row
    by_rows = np.matmul(h, outer, out=empty_array(*h.shape))
    by_rows *= 2.0 * amplitude * b[:, None]
    by_rows += amplitude * a[:, None] * (basis.root @ m)
    return (*pull(kernel, X, basis.Z, by_rows)[:2], amplitude * pull_diagonal(kernel, X, b), a @ h, gram(h, b))


class BoundGradient(NamedTuple):
    """Of the bound in theta and in the inducing inputs, and the stand-ins of every row, which come along."""

    theta: Array
    inputs: Array
    stand_ins: Array


def gradient_of(latent: InducingFunction) -> BoundGradient:
    """The gradient of the bound, with N(m, S) at its optimum: one pass."""
    basis, setting, m, excess = latent.basis, latent.setting, latent.posterior.mean, latent.excess
    names = setting.likelihood.free
    model = latent.posterior.model
    held = isinstance(model, LatentLinearModel) and isinstance(model.sites[0].H, np.ndarray)
    if held and isinstance(model, LatentLinearModel) and isinstance(latent.blocks, LocalBlocks):
        sites = latent.posterior.sites
        slopes = held_slopes(latent.blocks.whole, latent.reading, model.sites[0], m, excess, names, sites)
    else:
        slopes = combine_pairwise(latent.blocks.each(slopes_of, latent.reading, m, excess, names), RowSlopes.joined)
    theta, inputs, diagonal, pulled, bent, found, stand_ins = slopes
    inner = np.outer(m, pulled) + 2.0 * excess @ symmetrise(bent)
    # ∂bound/∂K_uu = −L⁻ᵀ Φ(Σ g hᵀ) L⁻¹, and L⁻ᵀ = C⁻¹
    half = np.tril(inner, -1) + 0.5 * np.diag(np.diagonal(inner))
    outer = -(setting.amplitude**2) * (basis.root @ half @ basis.root.T)
    own = pull(setting.kernel, basis.Z, basis.Z, 0.5 * (outer + outer.T))
    of_likelihood = setting.likelihood.pull(dict(zip(names, found, strict=True)))
    # both arguments of K_uu move with Z
    return BoundGradient(
        np.concatenate([theta + diagonal + own.theta, of_likelihood]), inputs + 2.0 * own.inputs, stand_ins
    )
