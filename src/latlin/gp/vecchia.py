"""A Gaussian process by Vecchia's density: every engine and likelihood at the cost of a sparse Cholesky factor.

The prior of the latent function at the training inputs is that of `latlin.gp.conditionals`, a sparse precision; the
sites are on its coordinates. New inputs are conditioned in the same manner on the nearest training inputs, whose
posterior covariance is part of the predictive variance:

    w_* | w ~ N(a_*ᵀw, d_*),   so   E w_* = a_*ᵀm,   Var w_* = d_* + a_*ᵀS a_*.

The evidence is that of this density, which is another model than the exact process, the nearer the more neighbours; it
is no bound on the exact evidence. Equal inputs share one value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular

from latlin.densities.sparse_precision import SparsePrecisionCovariance
from latlin.gp.approximation import LatentFunction
from latlin.gp.conditionals import Conditionals, Neighbourhoods
from latlin.gp.latent import accuracy_for, leave_one_out_density, require_sites, warm_start
from latlin.gp.setting import Setting
from latlin.inference.engine import Engine
from latlin.inference.evidence.gradient import PrecisionSlopes, evidence_gradient
from latlin.inference.infer import infer
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
from latlin.numerics.sparse_cholesky import Analysis, SparseCholesky, analyse
from latlin.numerics.stored import are_places, storable, storable_by_arguments
from latlin.potentials.base import Potential

Index = NDArray[np.integer]
#: a first search for the parameters is made on this part of the rows, but on so many at least and at most
PART, FIRST = 3, (600, 2000)
#: learnt length scales whose ratios differ by more than this factor from those neighbours were chosen in: these are
#: chosen again, so many times at most
STRETCHED, ROUNDS = 1.5, 2
#: new inputs whose variances are found by solves; for more of them one factor gives all
FEW = 50
ANOTHER = "evidence of Vecchia's density with {} neighbours, which is another model than the exact process"


@storable_by_arguments
@dataclass(frozen=True)
class Vecchia:
    """Every latent value is conditioned on the nearest earlier ones.

    Parameters
    ----------
    n_neighbours : int
        More are closer to the exact process and cost more; as many as there are rows give it exactly.
    learning_rows : int or None
        Rows, chosen at random, from which kernel and likelihood are learnt at most; the posterior is then that of all
        rows. None learns from all.

    Examples
    --------
    >>> from latlin.gp import GaussianProcessRegressor
    >>> X = np.random.default_rng(0).random((300, 2))
    >>> model = GaussianProcessRegressor(approximation=Vecchia(n_neighbours=10)).fit(X, np.sin(5 * X[:, 0]))
    >>> bool(abs(model.predict([[0.5, 0.5]])[0] - np.sin(2.5)) < 1e-2)
    True
    """

    name: ClassVar[str] = "vecchia"
    n_neighbours: int = 20
    learning_rows: int | None = 20_000

    def __post_init__(self) -> None:
        check_whole("n_neighbours", self.n_neighbours, 1)
        if self.learning_rows is not None:
            check_whole("learning_rows", self.learning_rows, 1)

    def refusal(self, setting: Setting, n_rows: int, n_columns: int) -> str:
        """A kernel that is not evaluated pair by pair is not taken."""
        try:
            points = np.zeros((2, n_columns))
            Neighbourhoods(points, np.array([[-1], [0]]), np.ones(n_columns), 1).covariances(setting.kernel)
        except ValueError as error:
            return str(error)
        return ""

    def longest_product(self, n_rows: int) -> float:
        """None that threads pay for: sparse factors choose their own, and those of BLAS would spin beside them."""
        return 0.0

    def prepare(
        self, setting: Setting, X: Array, y: Array, engine: Engine, rng: np.random.Generator, verbose: bool = False
    ) -> VecchiaFitter:
        """An order and neighbours; of many rows first those of some, which say where the parameters are."""
        data = _Data(X, y, engine, self.n_neighbours)
        if not len(setting.theta):
            return data.fitter(setting.kernel)
        order, stages = rng.permutation(len(X)), [data]
        few = min(max(len(X) // PART, FIRST[0]), FIRST[1])
        if self.learning_rows is not None and self.learning_rows < len(X):
            stages = [data.some(order[: self.learning_rows]), replace(data, learnt_from=self.learning_rows)]
        if len(stages[0].X) >= 2 * FIRST[0]:
            stages.insert(0, data.some(order[:few]))
        return stages[0].fitter(setting.kernel, tuple(stages[1:]))


@storable
@dataclass(frozen=True)
class _Data:
    """Training rows and how they are fitted."""

    X: Array
    y: Array
    engine: Engine
    n_neighbours: int
    #: how many rows the parameters were learnt from, where these are more
    learnt_from: int = 0

    def some(self, rows: Index) -> _Data:
        """Some of the rows."""
        kept = np.sort(rows)
        return replace(self, X=self.X[kept], y=self.y[kept])

    def fitter(self, kernel: Any, larger: tuple[_Data, ...] = ()) -> VecchiaFitter:
        """Neighbours in the metric of a kernel."""
        inputs, rows = _distinct(self.X) if _is_function(kernel, self.X) else (self.X, None)
        hoods = Neighbourhoods.of(inputs, self.n_neighbours, _scales(kernel, self.X.shape[1]))
        return VecchiaFitter(self, hoods, rows, larger)


def _is_function(kernel: Any, X: Array) -> bool:
    """Whether equal inputs have equal values: not where the kernel has white noise."""
    one = X[:1]
    return bool(np.isclose(kernel(one, one)[0, 0], kernel.diag(one)[0], rtol=1e-12))


def _distinct(X: Array) -> tuple[Array, Index | None]:
    """Inputs without repetition, and which of them each row has; None where there is none."""
    found, first, which = np.unique(X, axis=0, return_index=True, return_inverse=True)
    if len(found) == len(X):
        return X, None
    order = np.argsort(first)
    label = np.empty_like(order)
    label[order] = np.arange(len(order))
    return found[order], label[which.ravel()]


def selection_matrix(places: Index | None, count: int) -> sparse.csr_array | None:
    """H of sites that each see one of `count` values; None where site n sees value n."""
    if places is None:
        return None
    if not are_places(places, count):
        raise ValueError(f"rows must be places among {count} values")
    ones = (np.ones(len(places)), places, np.arange(len(places) + 1))
    return sparse.csr_array(ones, shape=(len(places), count))


def _scales(kernel: Any, width: int) -> Array:
    """Units of the columns in which inputs are near: the first length scales of a kernel, one per column."""
    for name, value in kernel.get_params().items():
        if name.rpartition("__")[2] == "length_scale" and np.shape(value) == (width,):
            return np.asarray(value, float)
    return np.ones(width)


def model_of(setting: Setting, given: Conditionals, sites: SiteFactor) -> LatentLinearModel:
    """N(w | mean, Q⁻¹) ∏ φ_n(w_n)."""
    prior = GaussianFactor(setting.mean, precision=given.precision(), log_det=given.log_det)
    return LatentLinearModel([prior, sites])


@storable
@dataclass(frozen=True)
class VecchiaFitter:
    """Training rows with neighbours.

    Parameters
    ----------
    data : _Data
    hoods : Neighbourhoods
        Of the distinct inputs.
    rows : ndarray of int, shape (n,), or None
        Which of them each training row has; None where all are distinct.
    larger : tuple of _Data
        More rows, where these are some of them.
    rounds : int
        How often neighbours were chosen again.
    """

    data: _Data
    hoods: Neighbourhoods
    rows: Any
    larger: tuple[_Data, ...] = ()
    rounds: int = 0

    @property
    def X(self) -> Array:
        return self.data.X

    @property
    def note(self) -> str:
        """What the evidence is, and from how many rows was learnt."""
        few = self.data.learnt_from
        return ANOTHER.format(self.hoods.count) + (f"; parameters learnt from at most {few} of the rows" if few else "")

    @property
    def settled(self) -> bool:
        """Whether the parameters are those of fewer rows."""
        return self.data.learnt_from > 0

    @property
    def n_rows(self) -> int:
        return len(self.X)

    @property
    def accuracy(self) -> float:
        """Relative change of the evidence at which a search ends."""
        return accuracy_for(len(self.X))

    def fit(self, setting: Setting, start: LatentFunction | None = None, verbose: bool = False) -> VecchiaLatent:
        """The posterior at fixed parameters; a start that is just this is given back."""
        if isinstance(start, VecchiaLatent) and self._has_fitted(start, setting):
            return start
        given = self.hoods.conditionals(setting.kernel, setting.amplitude)
        model = model_of(setting, given, self.sites(setting.likelihood.observe(self.data.y)))
        posterior = require_sites(infer(model, self.data.engine, start=warm_start(start, model), verbose=verbose))
        return VecchiaLatent(setting, self.hoods, given, posterior)

    def _has_fitted(self, latent: VecchiaLatent, setting: Setting) -> bool:
        """Whether a latent function is that of these rows at these parameters."""
        same = latent.hoods is self.hoods and np.array_equal(latent.setting.theta, setting.theta)
        return same and latent.posterior.converged

    def sites(self, potential: Potential) -> SiteFactor:
        """The sites of all rows; what a fit finds of their pattern serves the next one."""
        known = vars(self).get("_sites")
        if known is None:
            known = vars(self)["_sites"] = SiteFactor(selection_matrix(self.rows, len(self.hoods.inputs)), potential)
        return known.with_potential(potential)

    def fit_with_gradient(self, setting: Setting, start: LatentFunction | None = None) -> tuple[VecchiaLatent, Array]:
        """The posterior at fixed parameters, and ∂ log evidence/∂theta."""
        latent = self.fit(setting, start)
        return latent, self.gradient(latent)

    def gradient(self, latent: VecchiaLatent) -> Array:
        """∂ log evidence/∂theta at a posterior of `fit`."""
        setting, slopes = latent.setting, PrecisionSlopes(latent.posterior)
        structure = getattr(latent.posterior.density, "structure", None)
        if not isinstance(structure, SparsePrecisionCovariance):
            raise ValueError("the gradient of the evidence needs a factor of the precision; use covariance='full'")
        precision = structure.precision
        entries, covariances = self._entries(precision.factor.analysis), precision.inverse_values

        def moments(span: slice) -> Array:
            return slopes.moments(*self.hoods.places(span), covariances[entries[span].ravel()])

        own = self.hoods.slopes(setting.kernel, setting.amplitude, latent.given, moments)
        found = evidence_gradient(latent.posterior)
        return np.concatenate([own, setting.likelihood.pull(found.sites[0])])

    def _entries(self, analysis: Analysis) -> Index:
        """Where the pairs of values that occur together stand among the entries of the precision; kept for the next."""
        known = vars(self).get("_known")
        if known is None or known[0] is not analysis:
            i, j = (analysis.label[one] for one in self.hoods.places(slice(0, len(self.hoods.inputs))))
            found = analysis.entries(np.maximum(i, j), np.minimum(i, j)).astype(np.int32)
            known = vars(self)["_known"] = (analysis, found.reshape(len(self.hoods.inputs), -1))
        return known[1]

    def refined(self, latent: LatentFunction) -> VecchiaFitter | None:
        """All rows after some of them, and neighbours in the metric that was learnt."""
        kernel = latent.setting.kernel
        if self.larger:
            return self.larger[0].fitter(kernel, self.larger[1:])
        # in one metric neighbours are the same, whatever its unit
        stretched = np.ptp(np.log(_scales(kernel, self.X.shape[1]) / self.hoods.scales)) > np.log(STRETCHED)
        if self.settled or not stretched or self.rounds == ROUNDS:
            return None
        return replace(self.data.fitter(kernel), rounds=self.rounds + 1)


@dataclass(frozen=True)
class VecchiaLatent:
    """The posterior over the values at the training inputs, carried to others.

    Parameters
    ----------
    setting : Setting
    hoods : Neighbourhoods
    given : Conditionals
        Of the training inputs.
    posterior : Posterior
    """

    setting: Setting
    hoods: Neighbourhoods
    given: Conditionals
    posterior: Posterior

    @property
    def jitter(self) -> float:
        return self.given.jitter

    @property
    def factor(self) -> SiteFactor:
        """The sites of the training targets."""
        return require_in_memory(self.posterior.model).sites[0]

    def _predictors(self, new: Array) -> Conditionals:
        return self.hoods.predictors(new, self.setting.kernel, self.setting.amplitude, self.jitter)

    def means(self, new: Array) -> Array:
        """Means at new inputs."""
        mean = self.setting.mean
        return mean + self._predictors(new).rows(len(self.hoods.inputs)) @ (self.posterior.mean - mean)

    def marginals(self, new: Array) -> tuple[Array, Array]:
        """Means and variances at new inputs."""
        found, mean = self._predictors(new), self.setting.mean
        rows = found.rows(len(self.hoods.inputs))
        if len(new) > FEW:
            spread = self._factor_with(rows).inverse_squares(rows)
        else:
            spread = self.posterior.density.project(rows).variance
        return mean + rows @ (self.posterior.mean - mean), found.variances + np.maximum(spread, 0.0)

    def _factor_with(self, rows: sparse.csr_array) -> SparseCholesky:
        """The factor of the posterior precision on a pattern with all pairs of the new rows."""
        ones = sparse.csr_array((np.ones(rows.nnz), rows.indices, rows.indptr), shape=rows.shape)
        precision = self._precision
        analysis = analyse(abs(precision) + ones.T @ ones)
        factor = analysis.factorise(analysis.values(precision))
        assert factor is not None  # the fit has been there
        return factor

    @cached_property
    def _precision(self) -> sparse.csr_array:
        """S⁻¹ = Q + HᵀΓH."""
        sites, rows = self.posterior.sites, self.factor.H
        assert sites is not None  # `fit` checks it
        weights = sparse.diags_array(sites.gamma)
        return sparse.csr_array(self.given.precision() + (weights if rows is None else rows.T @ weights @ rows))

    def covariance(self, new: Array) -> Array:
        """Covariance matrix at new inputs, each of which is also conditioned on those before it.

        With w_* = A_o w + A_* w_* + ε: (I − A_*)⁻¹(A_o S A_oᵀ + D_*)(I − A_*)⁻ᵀ.
        """
        old = len(self.hoods.inputs)
        found, order = self.hoods.joint_predictors(new, self.setting.kernel, self.setting.amplitude, self.jitter)
        rows = found.rows(old + len(new))
        outer, inner = rows[:, :old], np.eye(len(new)) - rows[:, old:].toarray()
        density: Any = self.posterior.density
        times = density.times_covariance(outer.T.toarray())
        middle = outer @ times + np.diag(found.variances)
        half = solve_triangular(inner, middle, lower=True, unit_diagonal=True)
        ordered = solve_triangular(inner, half.T, lower=True, unit_diagonal=True)
        covariance = np.empty_like(ordered)
        covariance[np.ix_(order, order)] = 0.5 * (ordered + ordered.T)
        return covariance

    def leave_one_out(self) -> Array:
        """log p(y_n | all other y); see `Latent.leave_one_out`."""
        rows, mean, sites = self.factor.H, self.setting.mean, self.posterior.sites
        assert sites is not None  # `fit` checks it
        if rows is None:
            x, variance = self.posterior.mean - mean, self.posterior.variance
        else:
            projected = self.posterior.density.project(rows)
            x, variance = projected.mean - mean, projected.variance
        return leave_one_out_density(self.factor.potential, sites, x, variance, mean)

    def with_posterior(self, posterior: Posterior) -> VecchiaLatent:
        """The same with another word on its posterior."""
        return replace(self, posterior=posterior)
