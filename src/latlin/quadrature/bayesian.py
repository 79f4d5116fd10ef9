"""Bayesian quadrature: an integral as the unknown of a Gaussian process (Gutteridge (2021), §7.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from latlin.numerics.arrays import Array
from latlin.numerics.options import check_choice, check_whole, is_name
from latlin.numerics.rng import RandomState, generator
from latlin.quadrature.belief import NEGLIGIBLE, Belief, BeliefModel, ManyModels, Plain, Warped, fit_or_keep
from latlin.quadrature.kernels import (
    HALF,
    RBF,
    Box,
    Kernel,
    Standard,
    check_closed_form,
    has_closed_form,
    normal_logpdf,
    resolve_kernel,
)
from latlin.quadrature.measures import Measure, Reweighted
from latlin.quadrature.result import Evaluations, Integral, ResultMoments, pool_results
from latlin.quadrature.sequential import EvaluationPlan, Integrand, Scale, check_start, resolve_score, run
from latlin.quadrature.surrogate import (
    Basis,
    Ensemble,
    HyperparameterFit,
    Hyperparameters,
    Surrogate,
    condition,
    constant_basis,
    empty_basis,
    resolve_fit,
)

# --- A Gaussian process on log f, for positive integrands of many magnitudes: peaks, likelihoods.
#
# With g = log f ~ GP(m, C) given the evaluations,
#
#     ⟨f(x)⟩ = exp(m(x) + ½C(x, x)),   cov(f(x), f(x′)) = ⟨f(x)⟩⟨f(x′)⟩(exp C(x, x′) − 1),
#
# whose integrals have no closed form and are taken at nodes: low-discrepancy points of the measure, and of a Gaussian
# where the surrogate says that f p is. The surrogate is cheap, so there are thousands; how far parts of them disagree
# is counted in the variance.


#: nodes of the measure by its dimensions, and as many of the Gaussian at the peak
NODES = {1: 1024, 2: 2048}
MOST_NODES = 4096
#: parts of the nodes, whose disagreement says how accurate they are; covariances are formed among the nodes of one of
#: them, or this many
PARTS, COVARIED = 16, 256
#: least log f, counted from the largest, and the largest variance of log f that an exponential is trusted with
FLOOR, WIDEST = -700.0, 4.0
#: how much wider the Gaussian of nodes is than the peak
WIDER = 1.3


class PeakNodes(NamedTuple):
    """Points, and weights with which sums over them are integrals against the measure."""

    points: Array
    weights: Array


class LogWarped(NamedTuple):
    """A Gaussian process on log f."""

    kernel: Kernel
    basis: Basis
    measure: Standard
    fit: HyperparameterFit

    def __call__(self, points: Array, values: Array, previous: Belief | None) -> LogBelief:
        return self.believe(points, values, self.weigh(points, values, previous))

    def weigh(self, points: Array, values: Array, previous: Belief | None) -> Ensemble:
        """Length scales that fit the evaluations, and how probable these make them."""
        g, _ = _relative_logs(values)
        ensemble = fit_or_keep(self.fit, self.kernel, self.basis, points, g, previous)
        if previous is not None and ensemble is previous.ensemble:
            return ensemble
        # of the values themselves: dg = df/f
        return ensemble._replace(log_posterior=ensemble.log_posterior - float(g.sum()))

    def believe(self, points: Array, values: Array, ensemble: Ensemble) -> LogBelief:
        """What the evaluations say with these length scales."""
        g, scale = _relative_logs(values)
        mode = condition(self.kernel, self.basis, points, g, ensemble.mode)
        nodes = peak_nodes(mode, self.measure)
        moments, shares = log_moments(mode, nodes)
        members = [member for member in ensemble.members[1:] if member.weight > NEGLIGIBLE]
        others = [condition(self.kernel, self.basis, points, g, member.hyperparameters) for member in members]
        weights = np.array([ensemble.weights[0], *(member.weight for member in members)])
        parts = [moments, *(log_moments(process, nodes)[0] for process in others)]
        integral = pool_results(weights / weights.sum(), parts).times(scale)
        return LogBelief(ensemble, mode, shares, scale, integral)

    def suits(self, values: Array) -> bool:
        """Whether these may be values of the integrand: a zero has no logarithm, and a constant needs none."""
        return 0.0 < float(values.min()) < float(values.max())

    def made(self, belief: Belief) -> bool:
        """Whether the belief is one of this model."""
        return isinstance(belief, LogBelief) and belief.process.kernel is self.kernel


def _relative_logs(values: Array) -> tuple[Array, float]:
    """log(f / scale) and the scale, the largest value."""
    lowest, scale = float(values.min()), float(values.max())
    if lowest < 0.0 or not scale > 0.0:
        raise ValueError(f"warp='log' needs an integrand above zero, got values from {lowest:.6g} to {scale:.6g}")
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(values / scale), FLOOR), scale


class LogBelief(NamedTuple):
    """Of `LogWarped`."""

    ensemble: Ensemble
    process: Surrogate  # of log(f / scale)
    peak: PeakNodes  # points with their shares of the integral
    scale: float
    integral: ResultMoments

    def mean(self, z: Array) -> Array:
        return self.scale * _expected(self.process, z)

    def variances(self, z: Array) -> Array:
        spread = np.minimum(self.process.variances(z), WIDEST)
        return self.mean(z) ** 2 * np.expm1(spread)

    def amplitude(self, z: Array) -> Array:
        return self.mean(z)

    def left_out(self, values: Array) -> Array:
        g, variance = self.process.left_out(_relative_logs(values)[0])
        return self.scale * np.exp(g + 0.5 * np.minimum(variance, WIDEST))

    def link(self, z: Array) -> Array:
        # ∫ C(x, x′)⟨f(x′)⟩p(x′) dx′
        return self.process.covariance(z, self.peak.points) @ self.peak.weights * self.integral.mean


def _expected(process: Surrogate, z: Array) -> Array:
    """⟨f⟩ at the rows of z."""
    mean, variance = process.moments(z)
    return np.exp(mean + 0.5 * np.minimum(variance, WIDEST))


class _Peak(NamedTuple):
    """A Gaussian, or in a box the product of normals cut off at its sides."""

    centre: Array
    cov: Array
    boxed: bool

    def place(self, v: Array) -> Array:
        """Points of it from uniform numbers."""
        if not self.boxed:
            return self.centre + ndtri(v) @ np.linalg.cholesky(self.cov).T
        low, high, sd = self._ends()
        return np.clip(self.centre + sd * ndtri(low + v * (high - low)), -HALF, HALF)

    def logpdf(self, z: Array) -> Array:
        """Its log density inside the box."""
        if not self.boxed:
            return normal_logpdf(z - self.centre, self.cov)
        low, high, sd = self._ends()
        return normal_logpdf(z - self.centre, np.diag(sd * sd)) - float(np.log(high - low).sum())

    def _ends(self) -> tuple[Array, Array, Array]:
        sd = np.sqrt(np.diagonal(self.cov))
        return ndtr((-HALF - self.centre) / sd), ndtr((HALF - self.centre) / sd), sd


def peak_nodes(process: Surrogate, measure: Standard) -> PeakNodes:
    """Half of the measure, half of a Gaussian with the moments of f p, both weighted as one mixture."""
    d = measure.dim
    count = NODES.get(d, MOST_NODES)
    u = np.clip(qmc.Sobol(d + 1, seed=np.random.default_rng(0)).random(count), 1e-9, 1.0 - 1e-9)
    v = np.clip(qmc.Sobol(d, seed=np.random.default_rng(1)).random(count), 1e-9, 1.0 - 1e-9)
    wide = measure.place(u)
    points, weights = wide, np.full(count, 1.0 / count)
    for _ in range(2):
        height = process.mean(points)
        share = weights * np.exp(height - height.max())
        share = share / share.sum()
        centre = share @ points
        away = points - centre
        peak = _Peak(centre, WIDER**2 * ((away.T * share) @ away + 1e-6 * np.eye(d)), isinstance(measure, Box))
        points = np.vstack([wide, peak.place(v)])
        density = np.exp(measure.logpdf(points))
        mixed = 0.5 * density + 0.5 * np.exp(peak.logpdf(points))
        weights = density / mixed / len(points)
    # in parts that have nodes of both kinds: each is a rule of its own
    order = np.arange(2 * count).reshape(2, PARTS, -1).transpose(1, 0, 2).ravel()
    return PeakNodes(points[order], weights[order])


def log_moments(process: Surrogate, nodes: PeakNodes) -> tuple[ResultMoments, PeakNodes]:
    """Mean and variance of ∫ exp(g) p; and some of the nodes with their shares of the integral."""
    terms = _terms(process, nodes)
    mean = float(terms.sum())
    rules = PARTS * terms.reshape(PARTS, -1).sum(axis=1)
    some = slice(max(len(terms) // PARTS, COVARIED))
    points, shares = nodes.points[some], terms[some] / terms[some].sum()
    spread = float(shares @ np.expm1(np.minimum(process.covariance(points, points), WIDEST)) @ shares)
    variance = mean**2 * max(spread, 1e-15) + rules.var(ddof=1) / PARTS
    return ResultMoments.single(mean, variance, process.dof), PeakNodes(points, shares)


def _terms(process: Surrogate, nodes: PeakNodes) -> Array:
    """Weight times ⟨f⟩ at every node."""
    terms, inside = np.zeros(len(nodes.weights)), nodes.weights > 0.0
    terms[inside] = nodes.weights[inside] * _expected(process, nodes.points[inside])
    return terms


MEANS: dict[str, Basis] = {"constant": constant_basis, "zero": empty_basis}
WARPS = {"wsabi-l": False, "wsabi-m": True}
LOG = "log"
#: the word that leaves the kernel to the evaluations, and the kernels among which they choose
AUTO, CANDIDATES = "auto", ("rbf", "matern32", "matern12")


@dataclass(frozen=True)
class BayesianQuadrature:
    """Integrals with error bars from few evaluations.

    Parameters
    ----------
    measure : Gaussian, GaussianMixture, Uniform or Reweighted
        What is integrated against.
    kernel : {"auto", "rbf", "matern12", "matern32", "matern52"}
        The Matérn ones are products over the coordinates. They suit integrands with kinks and jumps. "auto" weighs
        "rbf", "matern32" and "matern12" by how probable they make the evaluations; from 100 evaluations on it takes
        the most probable one, and asks again each time they have doubled.
    hyperparameters : {"marginal", "ml"} or Hyperparameters
        "marginal" averages over length scales that fit the evaluations, "ml" takes the most probable ones. Either
        way mean and variance of the process are integrated out.
    mean : {"constant", "zero"}
        Mean function of the process; a warped process always has mean zero.
    warp : {"auto", None, "wsabi-l", "wsabi-m", "log"}
        For integrands that are nowhere negative: a process on the square root, linearised or moment-matched, or on the
        logarithm, which suits peaks and likelihoods and is the way to four and five dimensions. "auto" weighs processes
        on f and, while all values are above zero, on its logarithm as `kernel="auto"` weighs kernels (with another
        `kernel`, given length scales or noise it is None); from 100 evaluations on it takes "wsabi-l" where that
        foresees each of them, given the others and weighted by the density, clearly better. None is a process on f.
    acquisition : {"integral-variance", "uncertainty", "ucb"}
        What the sequential design asks for.
    ucb_weight : float
        λ of "ucb".
    noisy : bool
        Whether evaluations carry noise, whose variance is then found too.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.quadrature import BayesianQuadrature, Gaussian
    >>> bq = BayesianQuadrature(Gaussian(0.0, 1.0))
    >>> result = bq.integrate(lambda x: np.cos(x[:, 0]), budget=16, random_state=0)
    >>> print(f"{result.mean:.4f}")  # exp(−1/2)
    0.6065
    """

    measure: Measure
    kernel: str = "auto"
    hyperparameters: str | Hyperparameters = "marginal"
    mean: str = "constant"
    warp: str | None = "auto"
    acquisition: str = "integral-variance"
    ucb_weight: float = 1.0
    noisy: bool = False

    def __post_init__(self) -> None:
        if not hasattr(self.measure, "standard"):
            raise ValueError(
                "measure must be a Gaussian, GaussianMixture, Uniform or Reweighted of latlin.quadrature, got "
                f"{self.measure!r:.80}; any density serves by Reweighted(log_density, proposal)"
            )

    def integrate(
        self,
        f: Integrand,
        budget: int,
        *,
        initial: int | None = None,
        batch: int | None = None,
        rtol: float | None = None,
        atol: float = 0.0,
        log: bool = False,
        start: Evaluations | tuple[ArrayLike, ArrayLike] | None = None,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> Integral:
        """∫ f(x) p(x) dx from at most `budget` evaluations.

        Parameters
        ----------
        f : callable
            Points of shape (n, d) → values of shape (n,).
        budget : int
            Evaluations in all, those of `start` included.
        initial : int, optional
            Low-discrepancy points to begin with; 4 + 4d by default.
        batch : int, optional
            Evaluations between two looks at the result; an eighth of those there are by default.
        rtol, atol : float
            Stop when sd ≤ atol + rtol·|mean| twice in a row; `rtol=None` spends the budget.
        log : bool
            f returns logarithms (−inf for zero), as likelihoods do; the result then has a `log_scale`.
        start : (points, values), optional
            Evaluations made before.
        random_state : int, Generator or None
        verbose : bool

        Raises
        ------
        IntegrandError
            When f raises or returns something that is no number; the evaluations so far are in it.
        """
        if not callable(f):
            raise ValueError(f"f must be callable, got {f!r:.80}")
        check_whole("budget", budget, 1)
        model, score = self._model(), resolve_score(self.acquisition, self.ucb_weight)
        dim = self.measure.dim
        first = 4 + 4 * dim if initial is None else initial
        plan = EvaluationPlan(budget, min(first, budget), batch, rtol, atol)
        _check_plan(plan)
        known = None if start is None else check_start(start, dim)
        rng = generator(random_state)
        return run(self._against_proposal(f, log), self.measure, model, score, plan, Scale(log), known, rng, verbose)

    def condition(self, points: ArrayLike, values: ArrayLike) -> Belief:
        """What given evaluations say: `.integral` has mean, variance and dof; `.mean(z)`, `.variances(z)` describe f
        in the measure's standard coordinates, z = measure.frame.inward(x)."""
        known = check_start((points, values), self.measure.dim)
        return self._model()(self.measure.frame.inward(known.points), known.values, None)

    def _against_proposal(self, f: Integrand, log: bool) -> Integrand:
        """f p/q for a measure that is known by its log density, else f."""
        measure = self.measure
        if not isinstance(measure, Reweighted):
            return f
        if log:
            return lambda x: np.asarray(f(x), dtype=float) + measure.log_ratio(x)
        return lambda x: np.asarray(f(x), dtype=float) * np.exp(measure.log_ratio(x))

    def _model(self) -> BeliefModel:
        fit = resolve_fit(self.hyperparameters, self.noisy, self.measure.dim)
        check_choice("mean", self.mean, MEANS)
        check_choice("warp", self.warp, [None, AUTO, LOG, *WARPS])
        if self.warp == LOG:
            logs = self._logarithmic(fit)
            return logs[0] if len(logs) == 1 else ManyModels(tuple(logs))
        if self.warp not in (None, AUTO):
            return self._warped(fit, str(self.warp))
        models = [Plain(kernel, MEANS[self.mean], self.measure.standard, fit) for kernel in self._kernels()]
        if self._may_warp():
            return ManyModels((*models, *self._logarithmic(fit)), self._warped(fit, "wsabi-l"))
        return models[0] if len(models) == 1 else ManyModels(tuple(models))

    def _may_warp(self) -> bool:
        """Whether evaluations may prefer the logarithm; given length scales and noise are those of f itself."""
        free = not isinstance(self.hyperparameters, Hyperparameters) and not self.noisy
        return self.warp == AUTO and is_name(self.kernel, AUTO) and free

    def _kernels(self) -> list[Kernel]:
        standard = self.measure.standard
        if is_name(self.kernel, AUTO):
            return [k for k in map(resolve_kernel, CANDIDATES) if has_closed_form(k, standard)]
        kernel = resolve_kernel(self.kernel)
        check_closed_form(kernel, standard)
        return [kernel]

    def _logarithmic(self, fit: HyperparameterFit) -> list[LogWarped]:
        names = (RBF.name, "matern32") if is_name(self.kernel, AUTO) else (self.kernel,)
        return [LogWarped(resolve_kernel(name), MEANS[self.mean], self.measure.standard, fit) for name in names]

    def _warped(self, fit: HyperparameterFit, warp: str) -> Warped:
        if not (is_name(self.kernel, AUTO) or is_name(self.kernel, RBF.name)):
            raise ValueError(f"warp={self.warp!r} has closed forms for kernel='rbf' only, got {self.kernel!r}")
        return Warped(resolve_kernel(RBF.name), self.measure.standard, fit, WARPS[warp])


def integrate(
    f: Integrand, measure: Measure, budget: int, *, random_state: RandomState = None, **options: object
) -> Integral:
    """∫ f(x) p(x) dx with an error bar: the front door.

    Parameters
    ----------
    f : callable
        Points of shape (n, d) → values of shape (n,).
    measure : Gaussian, GaussianMixture or Uniform
    budget : int
        Evaluations at most.
    **options
        Those of `BayesianQuadrature` and of its `integrate`, by name.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.quadrature import Uniform, integrate
    >>> result = integrate(lambda x: np.exp(-x[:, 0] * x[:, 1]), Uniform(0.0, 1.0, dim=2), 30, random_state=0)
    >>> print(f"{result.mean:.4f}")
    0.7966
    """
    names = set(BayesianQuadrature.__dataclass_fields__)
    engine = BayesianQuadrature(measure, **{k: v for k, v in options.items() if k in names})  # type: ignore[arg-type]
    rest = {k: v for k, v in options.items() if k not in names}
    return engine.integrate(f, budget, random_state=random_state, **rest)  # type: ignore[arg-type]


def _check_plan(plan: EvaluationPlan) -> None:
    if plan.budget < 3 or plan.initial < 3:
        raise ValueError(f"budget and initial must be at least 3, got {plan.budget} and {plan.initial}")
    if plan.batch is not None and plan.batch < 1:
        raise ValueError(f"batch must be at least 1, got {plan.batch}")
