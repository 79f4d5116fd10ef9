"""A Gaussian process on a complete grid with Gaussian noise: exact, by the eigenvectors of one small matrix per axis.

Where a kernel is a product over the columns (squared exponentials, products of `Columns`), its matrix on a grid is a
Kronecker product (Saatçi 2011). With slices M_j of the kernel along the axes through one point, at which it is κ,

    K = κ^−(J−1) M_1 ⊗ … ⊗ M_J = V diag(λ) Vᵀ,   log Z = −½ Σ (ỹ²/(λ + σ²) + log(λ + σ²) + log 2π),   ỹ = Vᵀ(y − μ).

Any other noise bends each point differently, and the product is lost: such likelihoods are refused.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.densities.gaussian import Gaussian, KroneckerCovariance, times_kronecker
from latlin.gp.approximation import LatentFunction
from latlin.gp.latent import leave_one_out_density
from latlin.gp.setting import Setting, row_blocks
from latlin.inference.engine import Engine
from latlin.inference.evidence.terms import ExpectedEvidence
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.stored import storable, storable_by_arguments
from latlin.potentials.base import Potential

#: pairs of points at which a kernel is held against the product of its slices, and how far it may be off
CHECKED, OFF = 64, 1e-9
#: smallest eigenvalue of a kernel matrix as a share of the largest one: what rounding leaves of it
ROUNDED = 1e-14
MESSAGE = "every factor is Gaussian: the posterior in closed form, by the eigenvectors of the axes"


@storable_by_arguments
@dataclass(frozen=True)
class Grid:
    """The exact process on a complete grid of inputs, for product kernels and Gaussian noise.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from latlin.gp import GaussianProcessRegressor
    >>> a, b = np.meshgrid(np.linspace(0, 3, 60), np.linspace(0, 2, 50))
    >>> X = np.column_stack([a.ravel(), b.ravel()])
    >>> model = GaussianProcessRegressor(RBF([1.0, 1.0]), approximation=Grid()).fit(X, np.sin(X[:, 0]) * X[:, 1])
    >>> bool(abs(model.predict([[1.0, 1.0]])[0] - np.sin(1.0)) < 1e-3)
    True
    """

    name: ClassVar[str] = "grid"

    def refusal(self, setting: Setting, n_rows: int, n_columns: int) -> str:
        """Gaussian noise of one scale is needed."""
        template = setting.likelihood.template
        if not template.gaussian or np.ndim(template.value_of("scale")):
            return "a grid is for Gaussian noise of one scale; use 'inducing' or 'vecchia' for other likelihoods"
        return ""

    def longest_product(self, n_rows: int) -> float:
        """That of the eigenvectors of an axis, of which there is one per axis; not known before."""
        return np.inf

    def prepare(
        self, setting: Setting, X: Array, y: Array, engine: Engine, rng: np.random.Generator, verbose: bool = False
    ) -> GridFitter:
        """The axes of the grid, and the place of every row on it."""
        found = [np.unique(column, return_inverse=True) for column in X.T]
        axes, where = tuple(axis for axis, _ in found), [place.ravel() for _, place in found]
        shape = tuple(len(axis) for axis in axes)
        place = np.ravel_multi_index(where, shape)
        if len(X) != np.prod(shape) or len(np.unique(place)) != len(X):
            said = " × ".join(map(str, shape))
            raise ValueError(f"X must hold every point of a grid once, got {len(X)} rows and axes of {said} values")
        return GridFitter(X, y, axes, place)


@storable
@dataclass(frozen=True)
class GridFitter:
    """Training rows on a grid.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    y : ndarray of shape (n,)
    axes : tuple of ndarray
        Values of the columns, increasing.
    place : ndarray of int, shape (n,)
        The point of the grid that each row is.
    """

    X: Array
    y: Array
    axes: tuple[Array, ...]
    place: NDArray[np.integer]

    def fit(self, setting: Setting, start: LatentFunction | None = None, verbose: bool = False) -> GridLatent:
        """The posterior at fixed parameters."""
        began = time.perf_counter()
        _check_product(setting, self.X)
        slices = Slices.of(setting, self.axes)
        pairs = [np.linalg.eigh(matrix) for matrix in slices.matrices]
        vectors = tuple(vector for _, vector in pairs)
        values = reduce(np.kron, [value for value, _ in pairs]) * slices.factor
        # eigenvalues of K are positive but for rounding
        values = np.maximum(values, ROUNDED * values.max())
        potential = setting.likelihood.observe(self.y)
        return _conditioned(setting, self, KroneckerCovariance(vectors, values, self.place), potential, began)

    def fit_with_gradient(self, setting: Setting, start: LatentFunction | None = None) -> tuple[GridLatent, Array]:
        """The posterior at fixed parameters, and ∂ log evidence/∂theta."""
        latent = self.fit(setting)
        return latent, self.gradient(latent)

    def gradient(self, latent: GridLatent) -> Array:
        """½αᵀdKα − ½ tr((K + σ²I)⁻¹dK), dK a sum of products with one slice changed each."""
        setting, prior = latent.setting, latent.prior
        slices = Slices.of(setting, self.axes, slopes=True)
        weights, inverse = latent.weights, 1.0 / latent.total
        grid = [v.T @ m @ v for m, v in zip(slices.matrices, prior.vectors, strict=True)]
        diagonals: list[Any] = [np.diagonal(matrix) for matrix in grid]
        own = np.zeros(setting.kernel.n_dims)
        for k in range(len(own)):
            for j, change in enumerate(slices.changes):
                turned = prior.vectors[j].T @ change[:, :, k] @ prior.vectors[j]
                moved = times_kronecker([turned if i == j else m for i, m in enumerate(grid)], weights)
                spread = reduce(np.kron, [np.diagonal(turned) if i == j else d for i, d in enumerate(diagonals)])
                own[k] += 0.5 * slices.factor * (weights @ moved - inverse @ spread)
            # κ in the denominator
            lost = (len(self.axes) - 1) * slices.centre[k]
            own[k] -= 0.5 * lost * (weights @ (prior.values * weights) - inverse @ prior.values)
        noise = latent.scale * float(weights @ weights - inverse.sum())
        return np.concatenate([own, setting.likelihood.pull({"scale": np.array([noise])})])

    def refined(self, latent: LatentFunction) -> None:
        """There is nothing to refine."""
        return None


@dataclass(frozen=True)
class Slices:
    """The kernel along the axes through one point.

    Parameters
    ----------
    matrices : list of ndarray of shape (n_j, n_j)
    changes : list of ndarray of shape (n_j, n_j, n_parameters)
        Derivatives, where they are wanted.
    factor : float
        amplitude² κ^−(J−1).
    centre : ndarray
        ∂ log κ/∂θ, where derivatives are wanted.
    """

    matrices: list[Array]
    changes: list[Array]
    factor: float
    centre: Array

    @classmethod
    def of(cls, setting: Setting, axes: tuple[Array, ...], slopes: bool = False) -> Slices:
        """The slices through the first point of the grid."""
        points = [_slice(axes, j, axis) for j, axis in enumerate(axes)]
        found = [setting.kernel(one, eval_gradient=True) if slopes else (setting.kernel(one), None) for one in points]
        matrices = [matrix for matrix, _ in found]
        kappa = float(matrices[0][0, 0])
        factor = setting.amplitude**2 * kappa ** (1 - len(axes))
        changes = [change for _, change in found if change is not None]
        return cls(matrices, changes, factor, changes[0][0, 0] / kappa if slopes else np.zeros(0))


def _slice(axes: tuple[Array, ...], column: int, values: Array) -> Array:
    """Points with some values in a column, and the first ones of the axes in the others."""
    points = np.tile([axis[0] for axis in axes], (len(values), 1))
    points[:, column] = values
    return points


def _check_product(setting: Setting, X: Array) -> None:
    """A ValueError where the kernel is no product over the columns."""
    rng = np.random.default_rng(0)
    a, b = X[rng.integers(len(X), size=CHECKED)], X[rng.integers(len(X), size=CHECKED)]
    true = np.array([setting.kernel(np.stack([one, two]))[0, 1] for one, two in zip(a, b, strict=True)])
    first, width = X[0], X.shape[1]
    made = np.full(CHECKED, float(setting.kernel(first[None])[0, 0]) ** (1 - width))
    for j in range(width):
        ends = np.tile(first, (2 * CHECKED, 1))
        ends[:CHECKED, j], ends[CHECKED:, j] = a[:, j], b[:, j]
        matrix = setting.kernel(ends)
        made *= matrix[np.arange(CHECKED), CHECKED + np.arange(CHECKED)]
    if np.abs(made - true).max() > OFF * np.abs(true).max():
        raise ValueError(
            "kernel must be a product over the columns on a grid: RBF, or a product of Columns with one column each, "
            f"got {setting.kernel!r:.120}"
        )


def _conditioned(
    setting: Setting, fitter: GridFitter, prior: KroneckerCovariance, potential: Potential, began: float
) -> GridLatent:
    scale = float(setting.likelihood.template.value_of("scale"))
    centred = fitter.y - setting.mean
    turned, total = prior.rotated(centred), prior.values + scale**2
    evidence = -0.5 * float(np.sum(turned**2 / total + np.log(total) + LOG_2PI))
    mean = setting.mean + prior.turned_back(prior.values / total * turned)
    gamma = np.full(len(centred), scale**-2)
    posterior = Posterior(
        model=LatentLinearModel([GridFactor(prior, setting.mean), SiteFactor(None, potential)]),
        density=Gaussian(mean, replace(prior, values=prior.values * scale**2 / total)),
        log_evidence=evidence,
        evidence_kind="exact",
        engine="exact",
        converged=True,
        n_iter=1,
        trace=np.array([evidence]),
        elapsed=time.perf_counter() - began,
        message=MESSAGE,
        sites=SiteParameters(gamma, gamma * centred),
        evidence_term=ExpectedEvidence(),
    )
    return GridLatent(setting, fitter, prior, posterior)


class GridFactor(GaussianFactor):
    """N(w | mean, K) with a Kronecker product K.

    Parameters
    ----------
    covariance : KroneckerCovariance
    mean : float
    """

    def __init__(self, covariance: KroneckerCovariance, mean: float = 0.0) -> None:
        self.covariance = covariance
        self.mean = np.asarray(mean, float)
        self._cov, self.H, self.factor = None, None, None
        self.size = self.dim = self.rank = covariance.dim
        self.log_det = -covariance.log_det
        self._seal()

    @cached_property
    def precision(self) -> sparse.csr_array:  # type: ignore[override]
        """K⁻¹, made where somebody asks for it."""
        inverse = replace(self.covariance, values=1.0 / self.covariance.values)
        return sparse.csr_array(inverse.dense())

    def __repr__(self) -> str:
        said = " × ".join(str(len(matrix)) for matrix in self.covariance.vectors)
        return f"GridFactor({said} points)"


@dataclass(frozen=True)
class GridLatent:
    """The posterior over the values on the grid, carried to other inputs.

    Parameters
    ----------
    setting : Setting
    fitter : GridFitter
    prior : KroneckerCovariance
        K.
    posterior : Posterior
    """

    setting: Setting
    fitter: GridFitter
    prior: KroneckerCovariance
    posterior: Posterior

    @property
    def jitter(self) -> float:
        return 0.0

    @property
    def scale(self) -> float:
        """σ."""
        return float(self.setting.likelihood.template.value_of("scale"))

    @property
    def total(self) -> Array:
        """λ + σ²."""
        return self.prior.values + self.scale**2

    @cached_property
    def weights(self) -> Array:
        """Vᵀ(K + σ²I)⁻¹(y − μ)."""
        return self.prior.rotated(self.fitter.y - self.setting.mean) / self.total

    def means(self, new: Array) -> Array:
        """Means at new inputs."""
        found = [_contracted(self._crossed(block), self.weights) for block in row_blocks(new)]
        return self.setting.mean + np.concatenate(found)

    def marginals(self, new: Array) -> tuple[Array, Array]:
        """Means and variances at new inputs."""
        taken = [_contracted([c**2 for c in self._crossed(block)], 1.0 / self.total) for block in row_blocks(new)]
        return self.means(new), np.maximum(self.setting.diagonal(new) - np.concatenate(taken), 0.0)

    def _crossed(self, new: Array) -> list[Array]:
        """V_jᵀk_j of new inputs, one matrix per axis; their products over the axes are Vᵀk."""
        axes, found = self.fitter.axes, []
        for j, (axis, vectors) in enumerate(zip(axes, self.prior.vectors, strict=True)):
            found.append(self.setting.kernel(_slice(axes, j, new[:, j]), _slice(axes, j, axis)) @ vectors)
        found[0] = found[0] * Slices.of(self.setting, axes).factor
        return found

    def covariance(self, new: Array) -> Array:
        """Covariance matrix at new inputs."""
        crossed = reduce(lambda a, b: (a[:, :, None] * b[:, None, :]).reshape(len(new), -1), self._crossed(new))
        return self.setting.prior(new) - (crossed / self.total) @ crossed.T

    def leave_one_out(self) -> Array:
        """log p(y_n | all other y); exact."""
        mean, sites = self.setting.mean, self.posterior.sites
        assert sites is not None  # `fit` gave them
        potential = self.setting.likelihood.observe(self.fitter.y)
        return leave_one_out_density(potential, sites, self.posterior.mean - mean, self.posterior.variance, mean)

    def with_posterior(self, posterior: Posterior) -> GridLatent:
        """The same with another word on its posterior."""
        return replace(self, posterior=posterior)


def _contracted(parts: list[Array], values: Array) -> Array:
    """Σ over the grid of ∏_j parts_j[n, i_j] · values[i_1, i_2, …], for every n."""
    found = np.broadcast_to(values, (len(parts[0]), len(values)))
    for part in parts:
        found = np.einsum("ni,nir->nr", part, found.reshape(len(part), part.shape[1], -1))
    return found[:, 0]
