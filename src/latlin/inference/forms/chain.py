"""Gaussians in site form when the prior is a Gauss–Markov chain: everything by passes along it, in O(T).

w holds the states of a `latlin.densities.chain.Chain`, and every site is on one of them, through hᵀx_t. The coordinates
u are the standardised innovations, in which the prior is N(u | 0, I); sites on one state add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.densities.chain import Chain, ChainCovariance, SmoothedChain, smooth, sum_by_state
from latlin.densities.gaussian import Gaussian
from latlin.inference.forms.projections import stacked_sites
from latlin.inference.forms.site_family import SiteForm, Solution
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.model import GaussianFactor, LatentLinearModel
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.linalg import Cholesky

Index = NDArray[np.integer]


class ChainFactor(GaussianFactor):
    """N(w | mean, ·) of the states of a chain.

    Parameters
    ----------
    chain : Chain
    mean : ndarray of shape (T·d,), or float

    Examples
    --------
    >>> walk = Chain(np.ones((3, 1, 1)), np.ones((3, 1, 1)), np.ones(1))
    >>> ChainFactor(walk)
    ChainFactor(3 states of width 1)
    """

    def __init__(self, chain: Chain, mean: Any = 0.0) -> None:
        self.chain = chain
        self.mean = np.asarray(mean, float)
        self._cov, self.H, self.factor = None, None, None
        self.size = self.dim = self.rank = chain.dim
        self.log_det = -2.0 * chain.log_det
        self._seal()

    @cached_property
    def precision(self) -> sparse.csr_array:  # type: ignore[override]
        """Q, made where somebody asks for it."""
        return self.chain.precision()

    def times_precision(self, v: Array) -> Array:
        """Qv, by two passes."""
        return self.chain.times_precision(v)

    def __repr__(self) -> str:
        return f"ChainFactor({self.chain.steps} states of width {self.chain.width})"


@dataclass(frozen=True)
class ChainProjections:
    """h_nᵀ L u for sites on states.

    Parameters
    ----------
    chain : Chain
    state : ndarray of int, shape (n,)
        The state of every site.
    """

    chain: Chain
    state: Index

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.state), self.chain.dim

    def sums(self, values: Array) -> Array:
        """Totals of numbers per site over the sites of every state."""
        return sum_by_state(values, self.state, self.chain.steps)

    def seen(self, x: Array) -> Array:
        """hᵀx_t of the states of the sites."""
        return (x.reshape(self.chain.steps, self.chain.width) @ self.chain.h)[self.state]

    def times(self, u: Array) -> Array:
        return self.seen(self.chain.apply(u))

    def transposed_times(self, r: Array) -> Array:
        return self.chain.apply_transposed((self.sums(r)[:, None] * self.chain.h).ravel())

    def gram(self, weights: Array) -> Array:
        rows = self.block(slice(None))
        return np.asfortranarray((rows.T * weights) @ rows)

    def variances(self, factor: Array) -> Array:
        raise NotImplementedError("the form of a chain has variances of its own")

    def block(self, span: slice) -> Array:
        """Rows of HL, dense: for small models."""
        states = self.state[span]
        rows = np.zeros((len(states), self.chain.steps, self.chain.width))
        rows[np.arange(len(states)), states] = self.chain.h
        return self.chain.rows(rows.reshape(len(states), -1))


@dataclass(frozen=True)
class ChainPrecision:
    """P = I + LᵀHᵀΓHL of a solution; smoothed again only when something is asked of it.

    Parameters
    ----------
    form : ChainForm
    parameters : SiteParameters
    """

    form: ChainForm
    parameters: SiteParameters

    @cached_property
    def found(self) -> SmoothedChain:
        found = self.form.smoothed(self.parameters)
        assert found is not None  # an ascent has been there
        return found

    @property
    def log_det(self) -> float:
        return self.found.log_det

    def solve(self, b: Array) -> Array:
        """P⁻¹b = L⁻¹SL⁻ᵀb, for a vector: b less what the sites take."""
        chain, gamma = self.form.chain, self.form.projections.sums(self.parameters.gamma)
        x = chain.apply(b).reshape(chain.steps, chain.width)
        pull = ((gamma * (x @ chain.h))[:, None] * chain.h).ravel()
        return b - chain.solve(ChainCovariance(chain, gamma).times(pull))


@dataclass(frozen=True)
class ChainForm(SiteForm):
    """The family of a model with a chain; see the module.

    Parameters
    ----------
    chain : Chain
    """

    projections: ChainProjections
    chain: Chain

    def smoothed(self, parameters: SiteParameters) -> SmoothedChain | None:
        """Moments of the member with these parameters."""
        return smooth(self.chain, *(self.projections.sums(values) for values in parameters))

    def solve(self, parameters: SiteParameters) -> Solution | None:
        found = self.smoothed(parameters)
        if found is None:
            return None
        precision: Any = ChainPrecision(self, parameters)
        vars(precision)["found"] = found
        # u = Lᵀ Hᵀ(ν − Γx)
        x = self.projections.seen(found.x)
        gamma, nu = parameters
        return Solution(parameters, precision, self.projections.transposed_times(nu - gamma * x), x)

    def variances(self, solution: Solution) -> Array:
        precision: Any = solution.precision
        return precision.found.variance[self.projections.state]

    def kept(self, solution: Solution) -> Array:
        return np.zeros(0)

    def restored(self, parameters: SiteParameters, kept: Array) -> Cholesky:
        precision: Any = ChainPrecision(self, parameters)
        return precision

    def covariance_gradient(self, solution: Solution, variance: Array, excess: Array) -> float:
        """Largest change of a state's precision, in units of its variance."""
        return float(np.abs(self.projections.sums(excess * variance)).max(initial=0.0))

    def density(self, solution: Solution) -> Gaussian:
        gamma = self.projections.sums(solution.parameters.gamma)
        return Gaussian(self.weights(solution.u), ChainCovariance(self.chain, gamma))


def chain_form(model: LatentLinearModel) -> ChainForm | None:
    """The form of a model whose prior is one chain with all sites on its states; None for any other model."""
    if len(model.gaussians) != 1 or not isinstance(model.gaussians[0], ChainFactor) or model.constraints:
        return None
    prior = model.gaussians[0]
    states = [_states(factor.H, prior.chain) for factor in model.sites]
    if any(found is None for found in states):
        return None
    sites, chain = stacked_sites(model), prior.chain
    state = np.concatenate([np.zeros(0, int), *[found for found in states if found is not None]])
    mean = np.broadcast_to(prior.mean, model.dim).astype(float)
    projections = ChainProjections(chain, state)
    rows = sparse.vstack([factor.H for factor in model.sites], format="csr") if len(states) != 1 else model.sites[0].H
    return ChainForm(
        mean,
        chain,
        None,
        None,
        np.zeros(chain.dim),
        -0.5 * chain.dim * LOG_2PI,
        projections,
        sites.shifted(projections.seen(mean)) if mean.any() else sites,
        rows,
        chain,
    )


def _states(H: Any, chain: Chain) -> Index | None:
    """The state of every row, where each is hᵀ on one state."""
    places = np.flatnonzero(chain.h)
    if H is None:
        return np.arange(chain.steps) if chain.width == 1 and chain.h[0] == 1.0 else None
    if not sparse.issparse(H) or H.nnz != H.shape[0] * len(places):
        return None
    csr = sparse.csr_array(H)
    if not csr.has_sorted_indices:
        return None
    indices, data = csr.indices.reshape(-1, len(places)), csr.data.reshape(-1, len(places))
    state = indices[:, 0] // chain.width
    fits = np.all(np.diff(csr.indptr) == len(places)) and np.all(data == chain.h[places])
    return state if fits and np.all(indices == state[:, None] * chain.width + places) else None
