"""How the evidence changes with the model: derivatives of `Posterior.log_evidence` in every parameter of every factor.

At the optimum of a bound the posterior's own parameters drop out (envelope theorem), and what is left is

    ∂ log Z / ∂θ = ⟨∂ log factors / ∂θ⟩_q

under the approximation q; for local bounds with the sites replaced by their bounds, for expectation propagation with
site parameters taken under the tilted densities (its evidence is stationary in the stand-ins at a fixed point,
Challis (2013), §3.6). The Laplace evidence is not stationary in the mode, and the mode's movement is added.
Evidence maximisation (ML-II), Challis (2013), B.6, corrected, is ascent along these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.densities.density import Density, PointMass
from latlin.densities.gaussian import Gaussian
from latlin.densities.sparse_precision import ProbedPrecisionCovariance, SparsePrecisionCovariance
from latlin.distributed.blocks import Block, add
from latlin.inference.blocks import BlockModel, Reading, read_pieces
from latlin.inference.evidence.terms import (
    EvidenceGradient,
    EvidenceTerm,
    FittedPosterior,
    GaussianGradient,
    Movement,
    SiteTerm,
)
from latlin.inference.forms.prior import prior_gaussian
from latlin.inference.forms.projections import stacked_rows, stacked_sites
from latlin.inference.model import GaussianFactor, LatentLinearModel, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.intrinsic import hold_coordinates
from latlin.numerics.linalg import Cholesky, cholesky
from latlin.numerics.sparse_cholesky import analyse
from latlin.potentials.base import Potential

# --- Derivatives of the log evidence in the means and covariances of the Gaussian factors.
#
# With r = Hw − μ, α = Σ⁻¹⟨r⟩ and q's covariance S,
#
#     ∂/∂μ = α + β,   ∂/∂Σ = ½(ααᵀ + αβᵀ + βαᵀ + Σ⁻¹HSHᵀΣ⁻¹ − Σ⁻¹)
#
# where β = Σ⁻¹H S Σ_n h_n τ_n is the movement of a mode that the sites' curvature pulls by τ, nil but for Laplace.
#
# A prior covariance K on w itself, with a posterior in site form S⁻¹ = K⁻¹ + G, G = HᵀΓH, needs no inverse of K, which
# may be singular to working precision: α = Hᵀ(ν − Γx), β = Hᵀτ − G S Hᵀτ, and K⁻¹ − K⁻¹SK⁻¹ = G − GSG, which for γ ≥ 0
# is HᵀΓ^½(I + Γ^½HKHᵀΓ^½)⁻¹Γ^½H.
#
# A prior that is normalised as a whole, N(w | m₀, S₀) over the constraints, takes off what its own integral gains: the
# same derivatives under it.


def gaussian_gradients(
    posterior: FittedPosterior, rows: Any, movement: Movement | None
) -> tuple[GaussianGradient, ...]:
    """One per Gaussian factor; `rows` are those of the sites."""
    held = own_factors(posterior)
    if _in_site_form(posterior, held):
        return (_from_sites(posterior, rows, movement),)
    move = None if movement is None else movement.move
    found = tuple(_from_moments(factor, posterior.density, held.dim, move) for factor in held.gaussians)
    prior = prior_gaussian(held) if held.normalise_prior else None
    if prior is None:
        return found
    gains = [_from_moments(factor, prior[0], held.dim, None) for factor in held.gaussians]
    return tuple(
        GaussianGradient(one.d_mean - gain.d_mean, one.d_cov - gain.d_cov)
        for one, gain in zip(found, gains, strict=True)
    )


def own_factors(posterior: FittedPosterior) -> LatentLinearModel:
    """The factors that are here, wherever the rows are."""
    model = posterior.model
    return model.own if isinstance(model, BlockModel) else require_in_memory(model)


def _in_site_form(posterior: FittedPosterior, held: LatentLinearModel) -> bool:
    """One factor, on w itself, with a full covariance, and stand-ins for the sites; constraints pull as sites do."""
    gaussians = held.gaussians
    alone = len(gaussians) == 1 and gaussians[0].H is None and gaussians[0].factor is not None
    return alone and posterior.sites is not None and not held.constraints


def _from_sites(posterior: FittedPosterior, rows: Any, movement: Movement | None) -> GaussianGradient:
    assert posterior.sites is not None
    gamma, nu = posterior.sites
    mean = np.broadcast_to(posterior.model.gaussians[0].mean, posterior.model.dim)
    # α = Hᵀ(ν − Γx)
    alpha = np.asarray(rows.T @ (nu - gamma * (rows @ (posterior.density.mean - mean))))
    d_cov = 0.5 * (np.outer(alpha, alpha) - _lost_precision(posterior, rows, gamma))
    if movement is None:
        return GaussianGradient(alpha, d_cov)
    beta = np.asarray(rows.T @ (movement.pull - gamma * (rows @ movement.move)))
    cross = np.outer(alpha, beta)
    return GaussianGradient(alpha + beta, d_cov + 0.5 * (cross + cross.T))


def _lost_precision(posterior: FittedPosterior, rows: Any, gamma: Array) -> Array:
    """K⁻¹ − K⁻¹SK⁻¹ without an inverse of K."""
    count, dim = rows.shape
    if count <= dim and np.all(gamma >= 0.0):
        root = np.sqrt(gamma)
        inner = root[:, None] * np.asarray(rows @ (rows @ posterior.model.gaussians[0].cov).T) * root
        inner[np.diag_indices(count)] += 1.0
        core = root[:, None] * cholesky(inner, name="I + Γ^½HKHᵀΓ^½").inverse() * root
        return np.asarray(rows.T @ (rows.T @ core).T)
    weighted = sparse.diags_array(gamma) @ rows if sparse.issparse(rows) else gamma[:, None] * rows
    g = _dense(rows.T @ weighted)
    return g - g @ posterior.density.covariance() @ g


def _from_moments(factor: GaussianFactor, density: Density, dim: int, move: Array | None) -> GaussianGradient:
    rows: Any = sparse.eye_array(dim, format="csr") if factor.H is None else factor.H
    residual = np.asarray(rows @ density.mean) - factor.mean
    pushed = np.zeros(rows.shape[0]) if move is None else np.asarray(rows @ move)
    if factor.by_precision:
        return GaussianGradient(factor.times_precision(residual + pushed), np.zeros(0))
    if factor.factor is not None:
        return _full(factor.factor, rows, density, residual, pushed)
    variance = density.variance if factor.H is None else density.project(rows).variance
    precision = 1.0 / np.broadcast_to(factor.cov, rows.shape[0])
    alpha, beta = precision * residual, precision * pushed
    spread = precision * (precision * variance - 1.0)
    return GaussianGradient(alpha + beta, 0.5 * (alpha**2 + 2.0 * alpha * beta + spread))


def _full(triangle: Array, rows: Any, density: Density, residual: Array, pushed: Array) -> GaussianGradient:
    chol = Cholesky(triangle, 0.0)
    alpha, beta = chol.solve(residual), chol.solve(pushed)
    turned = chol.solve(_dense(rows))
    spread = turned @ density.covariance() @ turned.T - chol.inverse()
    cross = np.outer(alpha, beta)
    return GaussianGradient(alpha + beta, 0.5 * (np.outer(alpha, alpha) + cross + cross.T + spread))


def _dense(matrix: Any) -> Array:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


# --- Derivatives of a site term in the parameters of its potential, one number per site.
#
# For a location–scale family ψ(x) = f((x − loc)/scale) − log scale,
#
#     ∂A/∂loc = −A[ψ′],   ∂A/∂log scale = −weight − A[(x − loc)ψ′].
#
# Every other parameter that a family declares in `free` is left to the term, which has a closed form or takes
# differences of its value.


def has_parameters(potential: Potential) -> bool:
    """Whether `parameter_gradients` has anything to say of a family; labels and counts are no parameters."""
    return potential.location_scale or bool(potential.free)


def parameter_gradients(term: SiteTerm, potential: Potential, span: slice, weight: Array) -> dict[str, Array]:
    """∂A/∂parameter of the sites in a span; one vector for all sites (cut points) is summed over them."""
    found: dict[str, Array] = {}
    if potential.location_scale:
        shift, stretch = term.motion(potential, span)
        found["loc"] = -shift
        found["scale"] = -(weight + stretch) / np.asarray(potential.scale)  # type: ignore[attr-defined]
    for name in potential.free:
        if name not in found:
            slope = term.slope(potential, name, span)
            found[name] = slope if slope.ndim == 1 else slope.sum(axis=-1)
    return found


def evidence_gradient(posterior: Posterior) -> EvidenceGradient:
    """Derivatives of `posterior.log_evidence`, re-optimised, in the parameters of the model.

    Parameters
    ----------
    posterior : Posterior
        Of any engine with an evidence, converged. A subspace covariance is differentiated with its basis held.

    Returns
    -------
    EvidenceGradient

    Examples
    --------
    >>> import numpy as np
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
    >>> X = np.array([[1.0, 0.5], [0.2, -1.0], [-0.7, 0.1]])
    >>> model = LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor(X, potentials.Logit([1, 0, 0]))])
    >>> gradient = evidence_gradient(infer(model, "gkl"))
    >>> gradient.gaussians[0].d_cov.round(4).tolist()
    [0.0069, 0.014]
    """
    term, model = _term_of(posterior), posterior.model
    held = own_factors(posterior)
    rows, sites, movement = stacked_rows(held), stacked_sites(held), term.movement(posterior)
    gaussians = gaussian_gradients(posterior, rows, movement)
    found: list[dict[str, Array]] = [{} for _ in sites.blocks]
    if any(has_parameters(p) for p in sites.potentials):
        term_here = term.site_term(posterior, rows, sites, movement)
        found = [parameter_gradients(term_here, p, span, sites.weight[span]) for span, p in sites.blocks]
    if isinstance(model, BlockModel):
        found.append(_totals(model, posterior, term, movement))
    return EvidenceGradient(gaussians, tuple(found), note_of(posterior))


def _term_of(posterior: Posterior) -> EvidenceTerm:
    """What the posterior carries, or a sentence for one that has nothing."""
    if isinstance(posterior.density, PointMass) or posterior.evidence_kind == "none":
        raise ValueError(
            f"evidence_gradient() needs an evidence, and engine {posterior.engine!r} gives none; "
            "use 'laplace', 'ep' or 'gkl'"
        )
    if posterior.evidence_term is None:
        raise ValueError(
            f"the posterior of engine {posterior.engine!r} does not say how its evidence depends on the sites: an "
            "engine sets evidence_term=, see latlin.inference.evidence.terms"
        )
    return posterior.evidence_term


def note_of(posterior: Posterior) -> str:
    """Why a gradient is less than exact, or nothing."""
    if posterior.converged:
        return ""
    return f"the fit did not converge ({posterior.message}), so the gradient is only as good as the fit"


@dataclass(frozen=True)
class _Fitted:
    """A posterior without its rows, so that it can travel to them."""

    model: Any
    density: Any
    sites: None = None


def _totals(model: BlockModel, posterior: Posterior, term: EvidenceTerm, movement: Movement | None) -> dict[str, Array]:
    """Derivatives in the parameters of the observations in blocks, summed over all sites: one pass."""
    names = tuple(model.reading.kind().free)
    if not names:
        return {}
    fitted = _Fitted(None, posterior.density)
    return dict(zip(names, model.total(parameter_sums, fitted, term, movement), strict=True))


def parameter_sums(
    block: Block, reading: Reading, posterior: FittedPosterior, term: EvidenceTerm, movement: Movement | None
) -> tuple[Any, ...]:
    """Derivatives in the parameters of a block's sites."""
    kind = reading.kind()
    # one vector for all sites (cut points), or one number
    shapes = {name: np.shape(kind.value_of(name)) for name in kind.free}
    total: tuple[Any, ...] = tuple(np.zeros(shape) for shape in shapes.values())
    for observed in read_pieces(block, reading):
        sites = observed.sites
        here = term.site_term(posterior, observed.rows, sites, movement)
        found = parameter_gradients(here, observed.potential, slice(0, len(sites)), sites.weight)
        total = add(total, tuple(found[name] if shape else np.sum(found[name]) for name, shape in shapes.items()))
    return total


# --- Derivatives of the log evidence when the precision matrix of a Gaussian factor changes.
#
# A factor with precision Q, r = Hw − μ, contributes ½ log |Q|₊ − ½ rᵀQr. At a fitted posterior with covariance S and
# mean residual r̄ the envelope theorem leaves
#
#     d log Z = ½ d log |Q|₊ − ½ tr(dQ HSHᵀ) − ½ r̄ᵀdQ r̄
#
# and for the Laplace approximation, whose mode moves by −S Hᵀ dQ r̄ and takes its curvature along, also −(H S Σ_n h_n
# ½s_n²ψ_n‴)ᵀ dQ r̄. Of S only the entries on the pattern of HᵀdQH are needed: the selected inverse has them. A prior
# that is normalised as a whole takes off what its own integral gains.


Index = NDArray[np.integer]


@dataclass(frozen=True)
class PrecisionSlopes:
    """Slopes of one posterior's log evidence, for any number of changes.

    Parameters
    ----------
    posterior : Posterior
        Converged, of an engine with an evidence and a Gaussian density.
    """

    posterior: Posterior

    def __post_init__(self) -> None:
        self._density()

    def _density(self) -> Gaussian:
        density = self.posterior.density
        if not isinstance(density, Gaussian) or self.posterior.evidence_term is None:
            raise ValueError(
                "slopes need a Gaussian posterior with an evidence and its term, "
                f"got one of engine {self.posterior.engine!r}"
            )
        return density

    def __call__(self, change: Any, factor: int = 0, log_det_slope: float | None = None) -> float:
        """d log Z for a change dQ of the precision; see `precision_slope`."""
        model = own_factors(self.posterior)
        gaussian = model.gaussians[factor]
        if gaussian.precision is None:
            raise ValueError(f"GaussianFactor {factor} is given by its covariance: use evidence_gradient() for it")
        change = sparse.csr_array(change)
        if change.shape != gaussian.precision.shape:
            raise ValueError(f"change must have the shape {gaussian.precision.shape} of precision, got {change.shape}")
        rows = None if gaussian.H is None else sparse.csr_array(gaussian.H)
        slope = -0.5 * _mean_square(self._density(), change, rows, gaussian.mean)
        if self._move is not None:
            residual = _seen(rows, self.posterior.mean) - gaussian.mean
            slope -= float(_seen(rows, self._move) @ (change @ residual))
        if self._prior is not None:
            # log |Q|₊ is in the prior and in its integral alike
            return slope + 0.5 * _mean_square(self._prior, change, rows, gaussian.mean)
        given = _log_det_slope(gaussian.precision, gaussian.rank, change) if log_det_slope is None else log_det_slope
        return slope + 0.5 * given

    def moments(self, i: Index, j: Index, covariance: Array) -> Array:
        """M_ij of a factor on w itself, with which d log Z = ½ d log |Q|₊ − ½ Σ_ij dQ_ij M_ij.

        S_ij, which is given, + r̄_i r̄_j and, for the Laplace approximation, the movement of its mode.
        """
        residual = self._density().mean - require_in_memory(self.posterior.model).gaussians[0].mean
        first, second = residual[i], residual[j]
        if self._move is None:
            return covariance + first * second
        # r̄_i r̄_j + move_i r̄_j + r̄_i move_j
        return covariance + (first + self._move[i]) * second + first * self._move[j]

    @cached_property
    def _prior(self) -> Gaussian | None:
        model = own_factors(self.posterior)
        found = prior_gaussian(model) if model.normalise_prior else None
        return None if found is None else found[0]

    @cached_property
    def _move(self) -> Array | None:
        """S Σ_n h_n ½s_n²ψ_n‴, by which the curvature pulls the mode of a Laplace approximation."""
        term = self.posterior.evidence_term
        movement = None if term is None else term.movement(self.posterior)
        return None if movement is None else movement.move


def precision_slope(posterior: Posterior, change: Any, factor: int = 0, log_det_slope: float | None = None) -> float:
    """d `posterior.log_evidence`, re-optimised, when the precision of a Gaussian factor changes by dQ.

    Parameters
    ----------
    posterior : Posterior
    change : sparse matrix of shape (m, m)
        dQ, symmetric, on the pattern of Q or within it, with the null space of an intrinsic Q.
    factor : int
        Which Gaussian factor of the model.
    log_det_slope : float, optional
        d log |Q|₊, where it is known (rank·dτ/τ for τQ); else it is computed.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
    >>> Q = sparse.csr_array(np.array([[2.0, -1.0], [-1.0, 2.0]]))
    >>> sites = SiteFactor(None, potentials.Poisson([3, 4]))
    >>> post = infer(LatentLinearModel([GaussianFactor(precision=Q), sites]), "gkl")
    >>> round(precision_slope(post, Q), 4)  # d log Z / d log τ of the precision τQ at τ = 1
    -0.161
    """
    return PrecisionSlopes(posterior)(change, factor, log_det_slope)


def _seen(rows: sparse.csr_array | None, w: Array) -> Array:
    """Hw; w itself where the factor is on it."""
    return w if rows is None else rows @ w


def _mean_square(density: Gaussian, change: sparse.csr_array, rows: sparse.csr_array | None, mean: Array) -> float:
    """⟨rᵀdQ r⟩ = tr(HᵀdQH S) + r̄ᵀdQ r̄."""
    residual = _seen(rows, density.mean) - mean
    whole = change if rows is None else sparse.csr_array(rows.T @ change @ rows)
    structure = density.structure
    if isinstance(structure, SparsePrecisionCovariance | ProbedPrecisionCovariance):
        trace = structure.trace_with(whole)
    else:
        trace = float(whole.multiply(density.covariance()).sum())
    return trace + float(residual @ (change @ residual))


def _log_det_slope(precision: sparse.csr_array, rank: int | None, change: sparse.csr_array) -> float:
    """tr(Q⁺dQ) = tr(Q′⁻¹dQ), Q held at as many coordinates as its null space has dimensions."""
    analysis = analyse(abs(precision) + abs(change))
    grounded = hold_coordinates(analysis, analysis.values(precision), precision.shape[0] - (rank or 0))
    assert grounded is not None  # the factor was checked
    coo = sparse.coo_array(change)
    return float(np.sum(coo.data * grounded.factor.inverse_entries(coo.row, coo.col)))
