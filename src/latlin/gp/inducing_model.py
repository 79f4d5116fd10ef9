"""Inducing points: the latent function through its values at a few inputs, with a lower bound on the exact evidence.

    u = f(Z) ~ N(μ, K_uu),   f_n = μ + h_nᵀw + ε_n,   K_uu = LLᵀ,  u = μ + Lw,  h_n = L⁻¹k_u(x_n),
    Var ε_n = v_n = k(x_n, x_n) − h_nᵀh_n

(Titsias, 2009; Hensman, Matthews and Ghahramani, 2015). In the whitened w this is the latent linear model of standard
normal coordinates and sites with an extra variance,

    log Z ≥ Σ_n ⟨log φ_n(f)⟩ under N(f | μ + h_nᵀm, h_nᵀSh_n + v_n)  −  KL(N(m, S) ‖ N(0, I)),

so that the optimum over N(m, S) is a full Gaussian KL fit by sums over the rows, one sum where sites are Gaussian.
Rows h_n are made where the rows of X are, a piece at a time.

With a_n and b_n the derivatives of ⟨log φ_n⟩ in mean and variance, the sites' stand-ins γ_n = −2b_n and
ν_n = a_n + γ_n h_nᵀm hardly change with the kernel (they are the dual parameters
of Adam, Chang, Khan and Solin, 2021), so that the next kernel starts from S⁻¹ = I + Σγ_n h_n h_nᵀ, S⁻¹m = Σν_n h_n.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import lapack

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import DiagonalWhitening, PrecisionCovariance
from latlin.distributed.blocks import Block, Blocks, LocalBlocks, add, side_by_side, slices, widen_rows
from latlin.gp.kernel_gradients import cross
from latlin.gp.setting import MAX_JITTER, Setting, row_blocks
from latlin.gp.training import count_rows
from latlin.inference.blocks import BlockModel, Observed, read_pieces
from latlin.inference.forms.sites import SiteParameters, cavity
from latlin.inference.model import GaussianFactor, LatentLinearModel, Model, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, cholesky, gram, times_upper
from latlin.numerics.stored import storable
from latlin.potentials.base import Potential

#: share of the mean prior variance that always stands on the diagonal of K_uu, so that the bound is smooth in theta
JITTER = 1e-10
#: rows that are made together, where all are kept
PIECE = 2048
#: entries of the rows H up to which they are kept in memory for a fit
HELD = 2**26


@storable
@dataclass(frozen=True)
class Basis:
    """Inducing inputs at fixed parameters, K_uu = CᵀC = LLᵀ.

    Parameters
    ----------
    setting : Setting
    Z : ndarray of shape (M, n_features)
    root : ndarray of shape (M, M)
        C⁻¹, upper triangular.
    jitter : float
        What was added to the diagonal of K_uu.
    """

    setting: Setting
    Z: Array
    root: Array
    jitter: float

    @classmethod
    def of(cls, setting: Setting, Z: Array) -> Basis:
        """The basis of some inducing inputs."""
        K = setting.amplitude**2 * cross(setting.kernel, Z, Z)
        jitter = JITTER * float(np.diagonal(K).mean())
        K[np.diag_indices(len(Z))] += jitter
        found = cholesky(K, name="the kernel matrix of the inducing inputs, even with jitter,", max_jitter=MAX_JITTER)
        return cls(setting, Z, np.asfortranarray(lapack.dtrtri(found.factor, lower=0)[0]), jitter + found.jitter)

    def rows(self, X: Array) -> Array:
        """h_n = C⁻ᵀk_u(x_n), one per row."""
        h = cross(self.setting.kernel, X, self.Z)
        if self.setting.amplitude != 1.0:
            h *= self.setting.amplitude**2
        times_upper(h, self.root)
        return h

    def left_out(self, X: Array, h: Array) -> Array:
        """v_n = k(x_n, x_n) − ‖h_n‖², never below zero."""
        return np.maximum(self.setting.diagonal(X) - np.einsum("nm,nm->n", h, h), 0.0)


@dataclass(frozen=True)
class KernelRows:
    """A block of inputs read as sites on the inducing points; of labels, those of one class are ones."""

    basis: Basis
    one: Any = None

    @property
    def width(self) -> int:
        return len(self.basis.Z)

    def kind(self) -> Potential:
        return self.basis.setting.likelihood.template

    def __call__(self, block: Block) -> Observed:
        X = widen_rows(block.X)
        h = self.basis.rows(X)
        return Observed(h, self.observed(block), None, self._mean(len(X)), self.basis.left_out(X, h))

    def observed(self, block: Block) -> Potential:
        """The likelihood of a block's targets."""
        y = np.asarray(block.y)
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        likelihood = self.basis.setting.likelihood
        return likelihood.observe((y == self.one).astype(float) if self.one is not None else y.astype(float))

    def _mean(self, count: int) -> Array:
        return np.full(count, self.basis.setting.mean)


def stand_in_sums(block: Block, reading: KernelRows, stand_ins: Array, rows: int) -> tuple[Array, Array]:
    """Σ γ_n h_n h_nᵀ, its upper triangle, and Σ ν_n h_n of a block of `rows` rows, the last one shorter."""
    total: tuple[Any, ...] = (np.zeros((reading.width,) * 2, order="F"), np.zeros(reading.width))
    start = block.number * rows
    for part in kernel_parts(block, reading):
        h, span = reading.basis.rows(widen_rows(part.X)), slice(start, start + part.n_rows)
        total = add(total, (gram(h, stand_ins[0, span]), stand_ins[1, span] @ h))
        start = span.stop
    return total[0], total[1]


def leave_one_out_of(block: Block, reading: KernelRows, m: Array, excess: Array) -> Array:
    """log p(y_n | all other y) of a block's rows: the site taken out of N(m, S), then ε_n added."""
    parts = [np.zeros(0)]
    for part in kernel_parts(block, reading):
        observed = reading(part)
        h, sites = observed.rows, observed.sites
        x, variance = h @ m, np.maximum(np.einsum("nm,nm->n", h, h + h @ excess), 0.0)
        expected = sites.expected_log(x, variance)
        gamma = -2.0 * expected.d_var
        proper, centre, spread = cavity(gamma, expected.d_mean + gamma * x, x, variance, power=1.0)
        if not proper.all():
            raise ValueError(
                f"the posterior without its own site is no density at {int((~proper).sum())} of {len(x)} observations "
                "(outliers close to each other under a heavy-tailed likelihood); use a log-concave likelihood"
            )
        assert sites.extra is not None  # the reading gives it
        parts.append(observed.potential.tilted_moments(centre + sites.offset, spread + sites.extra).log_z)
    return np.concatenate(parts)


def kernel_parts(block: Block, reading: KernelRows) -> Any:
    """The block a cacheful of kernel rows at a time."""
    return read_pieces(block, _Unread(reading.width))


@dataclass(frozen=True)
class _Unread:
    """Cuts blocks and reads nothing."""

    width: int

    def __call__(self, block: Block) -> Any:
        return block

    def kind(self) -> Any:
        raise NotImplementedError("blocks are only cut")


@dataclass(frozen=True)
class InducingFunction:
    """The latent function given the data, through its values at the inducing inputs.

    Parameters
    ----------
    basis : Basis
    posterior : Posterior
        Over the whitened values w at the inducing inputs.
    blocks : Blocks
        The training rows.
    one : label, optional
        The class that counts as one, where targets are labels.
    stand_ins : ndarray of shape (2, n), optional
        γ and ν of every row, to start from at other parameters.
    """

    basis: Basis
    posterior: Posterior
    blocks: Blocks
    one: Any = None
    stand_ins: Array | None = None

    @property
    def setting(self) -> Setting:
        return self.basis.setting

    @property
    def jitter(self) -> float:
        return self.basis.jitter

    @property
    def reading(self) -> KernelRows:
        return KernelRows(self.basis, self.one)

    @cached_property
    def excess(self) -> Array:
        """S − I."""
        covariance = np.array(self.posterior.covariance(), order="F")
        covariance[np.diag_indices(len(covariance))] -= 1.0
        return covariance

    def means(self, new: Array) -> Array:
        """Means at new inputs."""
        m, basis = self.posterior.mean, self.basis
        return np.concatenate([self.setting.mean + basis.rows(block) @ m for block in row_blocks(new)])

    def marginals(self, new: Array) -> tuple[Array, Array]:
        """Means and variances at new inputs."""
        means, variances = zip(*map(self._block, row_blocks(new)), strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def _block(self, new: Array) -> tuple[Array, Array]:
        h = self.basis.rows(new)
        variances = self.setting.diagonal(new) + np.einsum("nm,nm->n", h, h @ self.excess)
        return self.setting.mean + h @ self.posterior.mean, np.maximum(variances, 0.0)

    def covariance(self, new: Array) -> Array:
        """Covariance matrix at new inputs."""
        h = self.basis.rows(new)
        return self.setting.prior(new) + h @ self.excess @ h.T

    def leave_one_out(self) -> Array:
        """log p(y_n | all other y) of the training rows, in one pass."""
        return np.concatenate(self.blocks.each(leave_one_out_of, self.reading, self.posterior.mean, self.excess))

    def with_posterior(self, posterior: Posterior) -> InducingFunction:
        """The same with another word on its posterior."""
        return replace(self, posterior=posterior)

    def start_at(self, basis: Basis, blocks: Blocks, model: Model) -> Posterior | None:
        """Where to start in another basis: from stand-ins of the same rows, or from this posterior's function."""
        share = count_rows(blocks) / count_rows(self.blocks)
        # the same points on more rows: their posterior with so many times the rows is near, and costs no pass
        known = None if share > 1.0 and self.has_points(basis.Z) else self._stand_ins_of(blocks, model)
        if known is None:
            return self._scaled(self._carried(basis), share)
        if isinstance(model, LatentLinearModel):
            rows = model.sites[0].H
            precision, linear = gram(rows, known[0]), known[1] @ rows
        else:
            assert isinstance(blocks, LocalBlocks)  # others keep no stand-ins
            precision, linear = blocks.total(stand_in_sums, KernelRows(basis, self.one), known, blocks.rows)
        precision[np.diag_indices(len(linear))] += 1.0
        try:
            found = cholesky(precision)
        except ValueError:
            return self._carried(basis)
        return replace(self._replaced(found.solve(linear), found), sites=SiteParameters(*known))

    def has_points(self, Z: Array) -> bool:
        """Whether these are its inducing inputs."""
        return Z.shape == self.basis.Z.shape and np.array_equal(Z, self.basis.Z)

    def _stand_ins_of(self, blocks: Blocks, model: Model) -> Array | None:
        """γ and ν of some rows: those kept, or those that this function has at rows in memory."""
        if self.stand_ins is not None and blocks is self.blocks and isinstance(blocks, LocalBlocks):
            return self.stand_ins
        if not isinstance(model, LatentLinearModel) or not isinstance(blocks, LocalBlocks) or not model.log_concave:
            return None
        means, variances = self.marginals(blocks.whole.X)
        _, a, b = model.sites[0].potential.expected_log(means, variances)
        return np.stack([-2.0 * b, a - 2.0 * b * (means - self.setting.mean)])

    def _replaced(self, mean: Array, precision: Cholesky) -> Posterior:
        structure = PrecisionCovariance(DiagonalWhitening(np.ones(len(mean))), precision)
        return replace(self.posterior, density=Gaussian(mean, structure), sites=None)

    def _carried(self, basis: Basis) -> Posterior | None:
        if self.has_points(basis.Z):
            return self.posterior
        h = self.basis.rows(basis.Z)
        K = self.setting.amplitude**2 * cross(self.setting.kernel, basis.Z, basis.Z)
        mean = basis.root.T @ (h @ self.posterior.mean)
        covariance = basis.root.T @ (K + h @ self.excess @ h.T) @ basis.root
        covariance[np.diag_indices(len(mean))] += 1e-8
        try:
            precision = cholesky(cholesky(covariance).inverse())
        except ValueError:
            return None
        return self._replaced(mean, precision)

    def _scaled(self, start: Posterior | None, share: float) -> Posterior | None:
        """A start as it would be with so many times the rows: S⁻¹ = I + share·(S⁻¹ − I), S⁻¹m likewise."""
        if start is None or share == 1.0:
            return start
        try:
            inverse = cholesky(start.covariance()).inverse()
            linear = share * (inverse @ start.mean)
            inverse *= share
            inverse[np.diag_indices(len(linear))] += 1.0 - share
            found = cholesky(inverse)
        except ValueError:
            return start
        return self._replaced(found.solve(linear), found)


def model_of(basis: Basis, blocks: Blocks, one: Any = None) -> Model:
    """The latent linear model of a basis: rows in memory where they are few, else in blocks."""
    whole = blocks.whole if isinstance(blocks, LocalBlocks) else None
    if whole is None or whole.n_rows * len(basis.Z) > HELD:
        return block_model(basis, blocks, one)
    rows, extra = fill_rows(basis, whole.X)
    prior, potential = GaussianFactor(dim=len(basis.Z)), KernelRows(basis, one).observed(whole)
    return LatentLinearModel([prior, SiteFactor(rows, potential, offset=basis.setting.mean, extra_variance=extra)])


def block_model(basis: Basis, blocks: Blocks, one: Any) -> BlockModel:
    """The model of a basis whose rows are made anew in every pass."""
    return BlockModel(LatentLinearModel([GaussianFactor(dim=len(basis.Z))]), blocks, KernelRows(basis, one))


def fill_rows(basis: Basis, X: Array) -> tuple[Array, Array]:
    """All rows h_n and what they leave out, made a piece at a time."""
    rows, extra = np.empty((len(X), len(basis.Z))), np.empty(len(X))
    spans = list(slices(len(X), PIECE))

    def fill(span: slice) -> None:
        part = widen_rows(X[span])
        rows[span] = basis.rows(part)
        extra[span] = basis.left_out(part, rows[span])

    for _ in side_by_side(fill, spans, len(spans)):
        pass
    return rows, extra
