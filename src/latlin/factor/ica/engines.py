"""The two factorisations of q(z, u): the sources of a row together, or each source together with its scale.

"block": q(z) q(u), q(z) one full Gaussian per row. It keeps what the sources of a row know of each other and treats the
scales u as independent of them, which costs little when the noise is small. "source": ∏_k q(z_k, u_k),
Lau (2020), eq. 12, which keeps the exact shape of each source's posterior and gives up their correlations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latlin.factor.fit import draw_gaussians
from latlin.factor.ica.model import IcaData, IcaState, SourceEngine, SourceModel, fields, products, source_precision
from latlin.numerics.arrays import LOG_SQRT_2PI
from latlin.numerics.linalg import Array, cholesky, gram, symmetrise
from latlin.numerics.threads import INNER, njit, share_out

# --- Compiled posteriors of Gaussian-scale-mixture sources, row by row.
#
# A row has the likelihood exp(−½zᵀGz + bᵀz) of its K sources z, G the same for every row. Either the sources of a row
# are kept together, with Gaussian q(z) and given prior precisions w_k (`infer_joint_rows`), or each source is kept
# together with its own scale u, q(z_k, u_k) = q(z_k | u_k) q(u_k), and q(u_k) is a table on a grid
# (`infer_single_rows`), Lau (2020), eq. 12. Rows go in runs; sums are added per run and then in order, so the numbers
# do not depend on the number of threads.


RUN = 256
#: nanoseconds per row and cubed number of sources, and per row and point of the grid, by measurement
JOINT, SINGLE = 4.0, 8.0


def n_runs(rows: int) -> int:
    """How many runs cover the rows."""
    return -(-rows // RUN)


@njit(**INNER)
def _factorise(a, root):  # type: ignore[no-untyped-def]
    """Lower triangular L with LLᵀ = A; returns log det A."""
    k = a.shape[0]
    log_det = 0.0
    for i in range(k):
        for j in range(i + 1):
            total = a[i, j]
            for l in range(j):
                total -= root[i, l] * root[j, l]
            if i == j:
                root[i, i] = np.sqrt(max(total, 1e-300))
                log_det += 2.0 * np.log(root[i, i])
            else:
                root[i, j] = total / root[j, j]
    return log_det


@njit(**INNER)
def _invert(root, inverse):  # type: ignore[no-untyped-def]
    """L⁻¹, lower triangular."""
    k = root.shape[0]
    for j in range(k):
        inverse[j, j] = 1.0 / root[j, j]
        for i in range(j + 1, k):
            total = 0.0
            for l in range(j, i):
                total -= root[i, l] * inverse[l, j]
            inverse[i, j] = total / root[i, i]


@njit(cache=True, nogil=True)
def infer_joint_rows(begin, end, field, precision, weights, means, variances, spread, log_dets):  # type: ignore[no-untyped-def]
    """q(z_n) = N(S_n b_n, S_n) with S_n = (G + diag w_n)⁻¹.

    Parameters
    ----------
    begin, end : int
        Runs of rows.
    field : ndarray of shape (N, K)
        b.
    precision : ndarray of shape (K, K)
        G.
    weights : ndarray of shape (N, K)
        w.
    means, variances : ndarray of shape (N, K)
        Out: S_n b_n and the diagonals of S_n.
    spread : ndarray of shape (runs, K, K)
        Out: sums of S_n, one per run.
    log_dets : ndarray of shape (runs,)
        Out: sums of log det S_n.
    """
    n, k = field.shape
    for run in range(begin, end):
        a, root, inverse = np.empty((k, k)), np.zeros((k, k)), np.zeros((k, k))
        half = np.empty(k)
        spread[run] = 0.0
        log_dets[run] = 0.0
        for row in range(run * RUN, min((run + 1) * RUN, n)):
            for i in range(k):
                for j in range(k):
                    a[i, j] = precision[i, j]
                a[i, i] += weights[row, i]
            log_dets[run] -= _factorise(a, root)
            _invert(root, inverse)
            for i in range(k):
                total = 0.0
                for j in range(i + 1):
                    total += inverse[i, j] * field[row, j]
                half[i] = total
            for i in range(k):
                mean = 0.0
                for l in range(i, k):
                    mean += inverse[l, i] * half[l]
                means[row, i] = mean
                for j in range(i + 1):
                    total = 0.0
                    for l in range(i, k):
                        total += inverse[l, i] * inverse[l, j]
                    spread[run, i, j] += total
                    if j == i:
                        variances[row, i] = total
                    else:
                        spread[run, j, i] += total


@njit(cache=True, nogil=True)
def infer_single_rows(begin, end, field, constant, share, grid, log_grid, out):  # type: ignore[no-untyped-def]
    """Moments under q(u) ∝ exp(c_j + ½b²r_j) on the grid and q(z | u) = N(b r, r), r = 1/(u + h).

    Parameters
    ----------
    begin, end : int
        Runs of rows.
    field : ndarray of shape (N,)
        b.
    constant, share, grid, log_grid : ndarray of shape (J,)
        c, r, u and log u.
    out : ndarray of shape (6, N)
        log Σ_j exp(…), ⟨z⟩, ⟨z²⟩, ⟨u⟩, ⟨log u⟩, ⟨uz²⟩.
    """
    count = grid.size
    for run in range(begin, end):
        weight = np.empty(count)
        for row in range(run * RUN, min((run + 1) * RUN, field.size)):
            b = field[row]
            half = 0.5 * b * b
            top = -np.inf
            for j in range(count):
                weight[j] = constant[j] + half * share[j]
                top = max(top, weight[j])
            mass, first, second, mean_u, log_u, product = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for j in range(count):
                if weight[j] < top - 45.0:
                    continue
                w = np.exp(weight[j] - top)
                r = share[j]
                square = r + b * b * r * r
                mass += w
                first += w * r
                second += w * square
                mean_u += w * grid[j]
                log_u += w * log_grid[j]
                product += w * grid[j] * square
            out[0, row] = top + np.log(mass)
            out[1, row] = b * first / mass
            out[2, row] = second / mass
            out[3, row] = mean_u / mass
            out[4, row] = log_u / mass
            out[5, row] = product / mass


def _by_source(function, squares: Array, shape: Array, scale: Array) -> Array:  # type: ignore[no-untyped-def]
    """A family's function on every column, N×K."""
    return np.column_stack([function(squares[:, k], shape[k], scale[k]) for k in range(len(shape))])


def _least_squares(field: Array, precision: Array) -> Array:
    """The sources with no prior, and a little ridge."""
    ridge = 1e-6 * np.diagonal(precision).mean()
    return cholesky(precision + ridge * np.eye(len(precision)), name="G", max_jitter=1e-6).solve(field.T).T


@dataclass(frozen=True)
class GaussianBlock:
    """q(z_n) Gaussian over all sources, q(u) at its best given ⟨z²⟩."""

    repeats: int = 2

    def infer(self, data: IcaData, state: IcaState, model: SourceModel) -> IcaState:
        field, precision = fields(data.rows, state), source_precision(state)
        shape, scale, squares = state.shape, state.scale, state.squares
        for _ in range(self.repeats):
            weights = _by_source(model.family.precision, squares, shape, scale)
            means, variances, spread, log_det = self._gaussians(field, precision, weights)
            squares = means**2 + variances
            fits = [model.family.fit(squares[:, k], shape[k], scale[k], model.learn) for k in range(len(shape))]
            shape, scale = np.array(fits).T
        prior = _by_source(model.family.log_density, squares, shape, scale).sum(axis=0)
        return state._replace(
            means=means,
            squares=squares,
            second=symmetrise(gram(means)) + spread,
            product=products(data.rows, means),
            prior=prior,
            entropy=0.5 * log_det + means.size * (LOG_SQRT_2PI + 0.5),
            shape=shape,
            scale=scale,
        )

    def describe(self, rows: Array, state: IcaState, model: SourceModel) -> tuple[Array, Array, Array]:
        field, precision = fields(rows, state), source_precision(state)
        squares = _least_squares(field, precision) ** 2 + 1e-12
        old = np.zeros_like(field)
        for _ in range(200):
            weights = _by_source(model.family.precision, squares, state.shape, state.scale)
            means, variances, _, _ = self._gaussians(field, precision, weights)
            squares = means**2 + variances
            if np.abs(means - old).max() <= 1e-9 * np.abs(means).max():
                break
            old = means
        weights = _by_source(model.family.precision, squares, state.shape, state.scale)
        value = _by_source(model.family.log_density, squares, state.shape, state.scale).sum(axis=1)
        # q(z) is the maximum for these weights, so ⟨−½zᵀGz + bᵀz⟩ + H = ½bᵀm − ½log det S⁻¹ + ½Σw⟨z²⟩ + ½K log 2π
        log_dets = self._log_dets(precision, weights)
        value += 0.5 * (np.einsum("nk,nk->n", field, means) + (weights * squares).sum(axis=1) + log_dets)
        return means, squares, value + means.shape[1] * LOG_SQRT_2PI

    def draw(self, rows: Array, state: IcaState, model: SourceModel, count: int, rng: np.random.Generator) -> Array:
        means, squares, _ = self.describe(rows, state, model)
        weights = _by_source(model.family.precision, squares, state.shape, state.scale)
        precision = source_precision(state) + weights[:, :, None] * np.eye(len(state.shape))
        return draw_gaussians(means, np.asarray(np.linalg.inv(precision), dtype=float), count, rng)

    @staticmethod
    def _gaussians(field: Array, precision: Array, weights: Array) -> tuple[Array, Array, Array, float]:
        n, k = field.shape
        means, variances = np.empty((n, k)), np.empty((n, k))
        spread, log_dets = np.empty((n_runs(n), k, k)), np.empty(n_runs(n))
        arrays = field, precision, weights, means, variances, spread, log_dets
        share_out(infer_joint_rows, n_runs(n), JOINT * RUN * k**3, *arrays)
        return means, variances, spread.sum(axis=0), float(log_dets.sum())

    @staticmethod
    def _log_dets(precision: Array, weights: Array) -> Array:
        """log det S_n of every row."""
        k = len(precision)
        return -np.linalg.slogdet(precision + weights[:, :, None] * np.eye(k))[1]


@dataclass(frozen=True)
class Single:
    """q(z_k, u_k) of every source, one after the other, u on a grid."""

    def infer(self, data: IcaData, state: IcaState, model: SourceModel) -> IcaState:
        field, precision = fields(data.rows, state), source_precision(state)
        for k in range(len(state.shape)):
            state = self.update(field, precision, state, model, k)
        return add_moments(data.rows, state)

    @staticmethod
    def update(field: Array, precision: Array, state: IcaState, model: SourceModel, k: int) -> IcaState:
        """Shape and scale of source k, (21) summed over observations, then q(z_k, u_k)."""
        mean_u, mean_log_u, product = state.scale_moments[:, k]
        shape, scale = state.shape.copy(), state.scale.copy()
        if np.isfinite(product):
            shape[k] = model.family.refit(mean_u, mean_log_u, shape[k]) if model.learn else shape[k]
            scale[k] = np.sqrt(product)
        b, h = field[:, k] - state.means @ precision[:, k] + precision[k, k] * state.means[:, k], precision[k, k]
        out = _tables(b, h, model, shape[k], scale[k])
        means, squares, prior = state.means.copy(), state.squares.copy(), state.prior.copy()
        means[:, k], squares[:, k] = out[1], out[2]
        # ⟨log p(z, u)⟩ + H = log Z + ½h⟨z²⟩ − b⟨z⟩
        prior[k] = float((out[0] + 0.5 * h * out[2] - b * out[1]).sum())
        moments = state.scale_moments.copy()
        moments[:, k] = out[3:].mean(axis=1)
        return state._replace(
            means=means, squares=squares, prior=prior, entropy=0.0, scale_moments=moments, shape=shape, scale=scale
        )

    def describe(self, rows: Array, state: IcaState, model: SourceModel) -> tuple[Array, Array, Array]:
        field, precision = fields(rows, state), source_precision(state)
        means = _least_squares(field, precision)
        squares, value = means**2, np.zeros((len(rows), len(precision)))
        for _ in range(200):
            old = means.copy()
            for k, h in enumerate(np.diagonal(precision)):
                b = field[:, k] - means @ precision[:, k] + h * means[:, k]
                out = _tables(b, h, model, state.shape[k], state.scale[k])
                means[:, k], squares[:, k] = out[1], out[2]
                value[:, k] = out[0] + 0.5 * h * out[2] - b * out[1]
            if np.abs(means - old).max() <= 1e-9 * np.abs(means).max():
                break
        second = np.einsum("nk,kl,nl->n", means, precision, means) + (squares - means**2) @ np.diagonal(precision)
        return means, squares, value.sum(axis=1) + np.einsum("nk,nk->n", field, means) - 0.5 * second

    def draw(self, rows: Array, state: IcaState, model: SourceModel, count: int, rng: np.random.Generator) -> Array:
        """u from its table, z | u ~ N(b/(u/s² + h), 1/(u/s² + h))."""
        field, precision = fields(rows, state), source_precision(state)
        means = self.describe(rows, state, model)[0]
        found = np.empty((count, *means.shape))
        for k, h in enumerate(np.diagonal(precision)):
            b = field[:, k] - means @ precision[:, k] + h * means[:, k]
            grid = model.family.grid(state.shape[k], float((b * b).max()) / h**2 / state.scale[k] ** 2)
            lent = np.exp(grid.log_u) / state.scale[k] ** 2
            log_share = grid.log_weight + 0.5 * np.log(lent / (lent + h)) + 0.5 * b[:, None] ** 2 / (lent + h)
            ladder = np.exp(log_share - log_share.max(axis=1, keepdims=True)).cumsum(axis=1)
            level = rng.random((count, len(b))) * ladder[:, -1]
            node = np.stack([np.searchsorted(steps, level[:, n]) for n, steps in enumerate(ladder)], axis=1)
            variance = 1.0 / (lent + h)[node]
            found[:, :, k] = variance * b + np.sqrt(variance) * rng.standard_normal(node.shape)
        return found


def _tables(b: Array, h: float, model: SourceModel, shape: float, scale: float) -> Array:
    """`infer_single_rows` for one source."""
    largest = float((b * b).max()) / h**2 / scale**2
    grid = model.family.grid(shape, largest)
    u = np.exp(grid.log_u)
    precision = u / scale**2
    constant = grid.log_weight + 0.5 * np.log(precision) - 0.5 * np.log(precision + h)
    out = np.empty((6, len(b)))
    arrays = np.ascontiguousarray(b), constant, 1.0 / (precision + h), u, grid.log_u, out
    share_out(infer_single_rows, n_runs(len(b)), SINGLE * RUN * len(u), *arrays)
    return out


def add_moments(rows: Array, state: IcaState) -> IcaState:
    """R and the t_d of independent sources."""
    second = symmetrise(gram(np.ascontiguousarray(state.means)))
    second[np.diag_indices_from(second)] = state.squares.sum(axis=0)
    return state._replace(second=second, product=products(rows, state.means))


ENGINES: dict[str, SourceEngine] = {"block": GaussianBlock(), "source": Single()}
