"""A Matérn process on a line, as the Markov process of its value and derivatives: a banded precision.

A Matérn process with smoothness ν = K − ½ has K states s = (f, f′, …) with  ds = Fs dx + white noise  (Hartikainen and
Särkkä 2010). With distances d = λΔx, λ = √(2ν)/length, and derivatives in units of λ, F has the only eigenvalue −1:

    s_{i+1} | s_i ~ N(A s_i, sd² V),   A = exp(dF) = e^{−d} Σ_k (F + I)^k d^k/k!,   V = q ∫₀^d (exp(tF)e)(exp(tF)e)ᵀ dt,

where e is the last unit vector. Both are polynomials times exponentials, and so are their derivatives in d.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, factorial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.special import gammainc

from latlin.additive.by import vary_field
from latlin.additive.expression import evaluate
from latlin.additive.places import check_nodes, runs_of, square_root
from latlin.additive.term import (
    Part,
    PartPrior,
    PredictorRows,
    Slope,
    Surroundings,
    Term,
    Values,
    scaled_slope,
    standard_deviation,
)
from latlin.hyper.space import Hyperparameter
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.stored import storable
from latlin.priors import InverseGamma

SMOOTHNESS = {0.5: 1, 1.5: 2, 2.5: 3}
#: by number of states, the share of the range of the data below which two places are one: states that near cannot be
#: distinguished in double precision
NEAREST = {1: 1e-5, 2: 1e-3, 3: 1e-2}
#: longest length sought, in units of the range of the data
LONGEST = 10.0


@storable
@dataclass(frozen=True)
class Smooth(Term):
    """A Gaussian process over a column with a Matérn covariance: stationary, with mean zero.

    Parameters
    ----------
    column : str
        A numeric column or an expression of columns; places may be anywhere.
    smoothness : {0.5, 1.5, 2.5}
        0.5 is rough (an Ornstein–Uhlenbeck process), 2.5 has two derivatives.
    by : str, optional
        A column of labels (one process per label) or of numbers (which multiply the process).

    Examples
    --------
    >>> part = Smooth("t").prepare({"t": [0.0, 0.5, 2.0]}, Surroundings())
    >>> [hyper.name for hyper in part.hyperparameters]
    ['sd(gp(t))', 'length(gp(t))']
    """

    column: str
    smoothness: float = 1.5
    by: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.ndim(self.smoothness) or self.smoothness not in list(SMOOTHNESS):
            raise ValueError(f"smoothness must be 0.5, 1.5 or 2.5, got {self.smoothness!r}")

    @property
    def label(self) -> str:
        return f"gp({self.column})"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        return vary_field(self.by, frame, around, self._field)

    def _field(self, frame: Any, around: Surroundings) -> Part:
        states = SMOOTHNESS[self.smoothness]
        nodes = _apart(np.unique(evaluate(self.column, frame)), NEAREST[states])
        if len(nodes) < 2:
            raise ValueError(f"{self.label} needs at least 2 distinct places, got {len(nodes)}")
        width = float(nodes[-1] - nodes[0])
        length = Hyperparameter(
            f"length({self.label})", 0.2 * width, _length_prior(width), bounds=(2e-3 * width, LONGEST * width)
        )
        sd = standard_deviation(f"sd({self.label})", around.unit)
        return SmoothPart(self.label, self.column, nodes, states, sd, length)


def _apart(nodes: Array, share: float) -> Array:
    """The places themselves, or those of a fine grid nearest to them where some are too close."""
    least = share * (nodes[-1] - nodes[0]) if len(nodes) > 1 else 0.0
    if least == 0.0 or np.diff(nodes).min() >= least:
        return nodes
    return np.asarray(nodes[0] + least * np.unique(np.round((nodes - nodes[0]) / least)))


def _length_prior(width: float) -> InverseGamma:
    """Neither much shorter than a fiftieth of the range of the data nor much longer than the range: median 0.27."""
    return InverseGamma(1.5, 0.32 * width)


class ChainStep(NamedTuple):
    """Transitions over several distances, with derivatives in the distance: arrays of shape (n, K, K)."""

    A: Array
    V: Array
    dA: Array
    dV: Array


@storable
@dataclass(frozen=True)
class SmoothPart(Part):
    """K states per distinct place; the first of them is the function."""

    label: str
    source: str
    nodes: Array
    states: int
    sd: Hyperparameter
    length: Hyperparameter

    def check_stored(self) -> None:
        check_nodes(self.label, self.nodes)
        if self.states not in NEAREST:
            raise ValueError(f"{self.label} must have one of {list(NEAREST)} states, got {self.states!r}")

    @property
    def names(self) -> tuple[str, ...]:
        marks = ["", "'", "''"][: self.states]
        return tuple(f"{self.label}{mark}[{x:.6g}]" for x in self.nodes for mark in marks)

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        return (self.sd, self.length)

    def _rate(self, values: Values) -> float:
        return float(np.sqrt(2.0 * self.states - 1.0) / values[self.length.name])

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        x = evaluate(self.source, frame)
        middles = 0.5 * (self.nodes[1:] + self.nodes[:-1])
        at = np.searchsorted(middles, x)
        near = 0.51 * NEAREST[self.states] * (self.nodes[-1] - self.nodes[0])
        if np.all(np.abs(self.nodes[at] - x) <= near):
            return PredictorRows(self._states(at, np.eye(self.states)[:1].repeat(len(x), axis=0)))
        return self._between(x, values)

    def _between(self, x: Array, values: Values) -> PredictorRows:
        """Rows at any places: the process given the states at the nearest nodes, and what remains unknown."""
        distinct, which = np.unique(x, return_inverse=True)
        runs = [distinct[run] for run in runs_of(np.searchsorted(self.nodes, distinct))]
        designs, roots = zip(*(self._given_nodes(run, self._rate(values)) for run in runs), strict=True)
        fresh = sparse.csr_array(sparse.block_diag(roots, format="csr")) * values[self.sd.name]
        return PredictorRows(sparse.csr_array(sparse.vstack(designs, format="csr"))[which], fresh[which])

    def _given_nodes(self, places: Array, rate: float) -> tuple[sparse.csr_array, Array]:
        """Weights of the states of the nodes at places in one gap, and a root of the covariance that is left."""
        K, P, last = self.states, stationary(self.states), len(self.nodes) - 1
        spot = int(np.searchsorted(self.nodes, places[0]))
        seen = sorted({max(spot - 1, 0), min(spot, last)})
        S = np.vstack([np.hstack([_between_states(self.nodes[a], self.nodes[b], rate, P) for b in seen]) for a in seen])
        cross = np.vstack([np.hstack([_between_states(x, self.nodes[a], rate, P)[0] for a in seen]) for x in places])
        solved = np.linalg.lstsq(S, cross.T, rcond=None)[0].T
        distance = rate * np.abs(places[:, None] - places)
        own = (transitions(distance.ravel(), K).A @ P)[:, 0, 0].reshape(distance.shape)
        columns = (K * np.array(seen)[:, None] + np.arange(K)).ravel()
        row = np.repeat(np.arange(len(places)), len(columns))
        table = (solved.ravel(), (row, np.tile(columns, len(places))))
        design = sparse.csr_array(table, shape=(len(places), K * len(self.nodes)))
        return design, square_root(own - cross @ solved.T)

    def _states(self, at: NDArray[np.int64], weights: Array) -> sparse.csr_array:
        K = self.states
        row = np.arange(len(at)).repeat(K)
        columns = (K * at[:, None] + np.arange(K)).ravel()
        table = sparse.csr_array((weights.ravel(), (row, columns)), shape=(len(at), K * len(self.nodes)))
        table.eliminate_zeros()
        return table

    def prior(self, values: Values) -> PartPrior:
        sd, n, K = values[self.sd.name], len(self.nodes), self.states
        step, P = transitions(self._rate(values) * np.diff(self.nodes), K), stationary(K)
        inverse, log_dets = _inverses(step.V)
        T = np.concatenate([-step.A, np.broadcast_to(np.eye(K), step.A.shape)], axis=2)
        blocks = np.swapaxes(T, 1, 2) @ inverse @ T
        precision = _banded(blocks, np.asarray(np.linalg.inv(P), float), n, K) / sd**2
        log_det = float(np.sum(log_dets)) + float(np.linalg.slogdet(P)[1])
        constant = -0.5 * n * K * LOG_2PI - n * K * np.log(sd) - 0.5 * log_det
        return PartPrior(sparse.csc_array(precision), float(constant))

    def slopes(self, values: Values) -> dict[str, Slope]:
        sd, length, n, K = values[self.sd.name], values[self.length.name], len(self.nodes), self.states
        d = self._rate(values) * np.diff(self.nodes)
        step = transitions(d, K)
        inverse, _ = _inverses(step.V)
        eye = np.broadcast_to(np.eye(K), step.A.shape)
        T, dT = np.concatenate([-step.A, eye], axis=2), np.concatenate([-step.dA, 0.0 * eye], axis=2)
        turned = inverse @ step.dV
        # ∂(TᵀV⁻¹T) = ∂Tᵀ V⁻¹T + TᵀV⁻¹ ∂T − TᵀV⁻¹ ∂V V⁻¹T
        cross = np.swapaxes(dT, 1, 2) @ inverse @ T
        middle = np.swapaxes(T, 1, 2) @ turned @ inverse @ T
        # ∂d/∂length = −d/length
        per_length = -d / length
        blocks = (cross + np.swapaxes(cross, 1, 2) - middle) * per_length[:, None, None]
        constant = -0.5 * float(np.sum(np.trace(turned, axis1=1, axis2=2) * per_length))
        turn = _banded(blocks, np.zeros((K, K)), n, K) / sd**2
        return {
            self.sd.name: scaled_slope(self.prior(values), n * K, sd),
            self.length.name: Slope(sparse.csc_array(turn), constant),
        }

    def report(self) -> sparse.csr_array:
        """The function at its places, then its derivatives in units of λ."""
        return sparse.eye_array(self.size, format="csr")


def drift(K: int) -> Array:
    """F for λ = 1: the companion matrix of (z + 1)^K."""
    F = np.eye(K, k=1)
    F[-1] = [-float(comb(K, j)) for j in range(K)]
    return F


def stationary(K: int) -> Array:
    """Covariance of the states for sd = λ = 1."""
    e = np.zeros((K, K))
    e[-1, -1] = 1.0
    P = linalg.solve_continuous_lyapunov(drift(K), -e)
    return np.asarray(P / P[0, 0])


def transitions(d: Array, K: int) -> ChainStep:
    """A and V over distances d in units of 1/λ, with sd = 1."""
    F = drift(K)
    powers = [np.linalg.matrix_power(F + np.eye(K), k) / factorial(k) for k in range(K)]
    A = np.exp(-d)[:, None, None] * sum(d[:, None, None] ** k * N for k, N in enumerate(powers))
    # the noise has q = 1/(variance of f for white noise of density one)
    e = np.zeros((K, K))
    e[-1, -1] = 1.0
    q = 1.0 / float(linalg.solve_continuous_lyapunov(F, -e)[0, 0])
    columns = [N[:, -1] for N in powers]
    V = np.zeros((len(d), K, K))
    for i, a in enumerate(columns):
        for j, b in enumerate(columns):
            # ∫₀^d e^{−2t} t^m dt = m!/2^{m+1} · P(m + 1, 2d)
            m = i + j
            V += q * factorial(m) / 2.0 ** (m + 1) * gammainc(m + 1, 2.0 * d)[:, None, None] * np.outer(a, b)
    last = A[:, :, -1]
    return ChainStep(A, V, F @ A, q * last[:, :, None] * last[:, None, :])


def _between_states(a: float, b: float, rate: float, P: Array) -> Array:
    """Covariance of the states at a with those at b, for sd = 1."""
    A = transitions(np.array([rate * abs(a - b)]), len(P)).A[0]
    return np.asarray(A @ P if a >= b else P @ A.T)


def _inverses(V: Array) -> tuple[Array, Array]:
    """Inverses and log determinants of covariances whose entries differ by many orders of magnitude."""
    root = np.sqrt(np.diagonal(V, axis1=1, axis2=2))
    C = V / root[:, :, None] / root[:, None, :]
    inverse = np.linalg.inv(C) / root[:, :, None] / root[:, None, :]
    return inverse, np.linalg.slogdet(C)[1] + 2.0 * np.sum(np.log(root), axis=1)


def _banded(blocks: Array, first: Array, n: int, K: int) -> sparse.csc_array:
    """Σ over neighbours of 2K × 2K blocks, and one K × K block at the beginning."""
    inner = np.arange(2 * K)
    start = K * np.arange(n - 1)
    row = (start[:, None, None] + inner[:, None]) + 0 * inner
    column = (start[:, None, None] + inner[None, :]) + 0 * inner[:, None]
    corner = np.arange(K)
    rows = np.concatenate([row.ravel(), corner.repeat(K)])
    columns = np.concatenate([column.ravel(), np.tile(corner, K)])
    data = np.concatenate([blocks.ravel(), first.ravel()])
    return sparse.csc_array((data, (rows, columns)), shape=(n * K, n * K))
