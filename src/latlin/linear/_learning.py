"""Which hyperparameters of a linear model are learnt, under which priors, and whether maximised or integrated.

Defaults are weakly informative in the units of the data: gamma densities of shape 2 for scales, which vanish at zero,
so that nothing collapses there (Chung, Rabe-Hesketh, Dorie, Gelman and Liu, 2013), and whose means are

    prior_scale   2 unit; with one per feature unit/√D
    noise_scale   unit
    df            20 (Juárez and Steel, 2010)

with `unit` the standard deviation of y where that is a measured number, else 1, divided by the size of the features
where these are not standardised. Parameters between two ends are uniform there, others log-normal about their start
with a factor e² either way.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from latlin.hyper.learn import Learnt, averaged_posterior, integrate, maximise
from latlin.hyper.marginals import HyperparameterTable, row_of
from latlin.hyper.space import Evaluate, Evaluation, Hyperparameter, Space
from latlin.inference.engine import Engine
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.forms.site_family import density_under
from latlin.inference.gaussian_kl.covariances import Full
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.posterior import Posterior
from latlin.linear._problem import LinearProblem
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_choice
from latlin.numerics.stored import storable
from latlin.potentials.ranges import Above, Between, Increasing, Positive, Range
from latlin.priors import Flat, Gamma, HalfStudentT, LogNormal, Prior, Uniform

# --- What a linear fit is: a posterior with its hyperparameters, how far a search for these goes, and where they lie.


class Accuracy(NamedTuple):
    """How far a search goes.

    Parameters
    ----------
    gradient : float
        Largest derivative of the log evidence in a log hyperparameter at the end, in nat.
    gain : float
        Least relative gain in log evidence that is worth another fit.
    """

    gradient: float = 1e-2
    gain: float = 1e-9


PLAIN = Accuracy()


@storable
class LearntShare(NamedTuple):
    """One component of a posterior that is averaged over hyperparameters: its weight and their values."""

    weight: float
    values: dict[str, Any]


@storable
class LearntFit(NamedTuple):
    """A posterior and the hyperparameters it belongs to.

    Parameters
    ----------
    posterior : Posterior
        A mixture where hyperparameters are integrated.
    values : dict
        Hyperparameters by name: given, at their optimum, or their posterior means.
    n_fits : int
    shares : tuple of Share
        Those of the components of a mixture, in their order; empty otherwise.
    table : HyperparameterTable or None
    """

    posterior: Posterior
    values: dict[str, Any]
    n_fits: int = 1
    shares: tuple[LearntShare, ...] = ()
    table: HyperparameterTable | None = None

    @property
    def weights(self) -> Array:
        """Those of the components of a mixture."""
        return np.array([share.weight for share in self.shares])


def ranges_of(problem: LinearProblem) -> dict[str, Range]:
    """Where each hyperparameter is sought."""
    unit = problem.unit
    return {
        "prior_scale": Positive(unit, 1e-4 * unit, 1e3 * unit),
        **problem.family.ranges(unit),
        **problem.prior.ranges(unit),
    }


Manner = Literal["auto", "maximise", "integrate", "fixed"]
#: hyperparameter → the estimator's argument
ARGUMENTS = {"scale": "noise_scale"}
#: most hyperparameters and unknowns of a fit that "auto" integrates
FEW, NARROW = 3, 100
#: most hyperparameters whose curvature is looked for
CURVED = 8
#: largest gradient entry of a fit that a search starts with
ROUGH = 1e-1
#: sd of the logarithm of a parameter of which nothing is known
WIDE = 2.0


class Learning(NamedTuple):
    """What a user asked for.

    Parameters
    ----------
    manner : {"auto", "maximise", "integrate", "fixed"}
    priors : mapping, Prior or None
        By the names of the estimator's arguments; one prior for all; or the defaults.
    """

    manner: Manner = "maximise"
    priors: Mapping[str, Prior] | Prior | None = None


def check_learning(manner: Any, priors: Any) -> Learning:
    """The checked wish."""
    check_choice("hyperparameters", manner, get_args(Manner))
    if priors is None or isinstance(priors, Prior):
        return Learning(manner, priors)
    if not isinstance(priors, Mapping):
        raise ValueError(f"priors must map names of hyperparameters to latlin.priors, got {priors!r:.80}")
    for name, prior in priors.items():
        if not isinstance(prior, Prior):
            raise ValueError(f"priors[{name!r}] must be one of latlin.priors, got {prior!r:.80}")
    return Learning(manner, dict(priors))


class Unknowns:
    """The free hyperparameters of a problem as named numbers: vectors one by one, cut points by the first and the gaps.

    Parameters
    ----------
    problem : Problem
    values : dict
        Every hyperparameter; the free ones are where a search starts.
    free : sequence of str
    priors : mapping, Prior or None
        See `Learning`.
    """

    def __init__(
        self,
        problem: LinearProblem,
        values: Mapping[str, Any],
        free: Sequence[str],
        priors: Mapping[str, Prior] | Prior | None,
    ) -> None:
        self._values, self._ranges = dict(values), {name: ranges_of(problem)[name] for name in free}
        self._refuse_unknown(priors)
        self._defaults = default_priors(problem, self._values, self._ranges)
        self._priors = priors
        self.space = Space([member for name in free for member in self._members(name)])

    def _refuse_unknown(self, priors: Mapping[str, Prior] | Prior | None) -> None:
        known = [ARGUMENTS.get(name, name) for name in self._ranges]
        if isinstance(priors, Mapping) and (strange := sorted(set(priors) - set(known))):
            raise ValueError(
                f"priors names {', '.join(map(repr, strange))}, which is not learnt here; learnt are {', '.join(known)}"
            )

    def _members(self, name: str) -> list[Hyperparameter]:
        span, shown, start = self._ranges[name], ARGUMENTS.get(name, name), self._values[name]
        given = self._priors if isinstance(self._priors, Prior) else (self._priors or {}).get(shown)
        if isinstance(span, Increasing):
            return _cut_members(shown, start, span, given)
        prior, ends = self._defaults[name] if given is None else given, _ends(span)
        if np.ndim(start) == 0:
            return [Hyperparameter(shown, _within(float(start), ends), prior, _support(span), ends)]
        return [
            Hyperparameter(f"{shown}[{j}]", _within(float(value), ends), prior, _support(span), ends)
            for j, value in enumerate(start)
        ]

    def starting_at(self, values: Mapping[str, Any]) -> Unknowns:
        """The same unknowns with other numbers to start from."""
        other = copy(self)
        other._values = dict(values)
        other.space = Space([member for name in self._ranges for member in other._members(name)])
        return other

    def assembled(self, numbers: Mapping[str, float]) -> dict[str, Any]:
        """Every hyperparameter as the model takes it."""
        found, left = dict(self._values), iter(numbers.values())
        for name, span in self._ranges.items():
            start = self._values[name]
            own = np.array([next(left) for _ in range(np.size(start))])
            found[name] = np.cumsum(own) if isinstance(span, Increasing) else own if np.ndim(start) else float(own[0])
        return found

    def slopes(self, found: Mapping[str, Any]) -> dict[str, float]:
        """Derivatives in the named numbers from those in the hyperparameters."""
        flat: list[float] = []
        for name, span in self._ranges.items():
            slope = np.atleast_1d(np.asarray(found[name], float))
            if isinstance(span, Increasing):
                # every later cut moves with the first one and with a gap
                slope = np.cumsum(slope[::-1])[::-1]
            flat += slope.tolist() if np.ndim(self._values[name]) else [float(slope.sum())]
        return dict(zip(self.space.names, flat, strict=True))


class LearningTask(NamedTuple):
    """What learning hyperparameters needs to know besides the problem.

    Parameters
    ----------
    wish : Learning
    accuracy : Accuracy
    cheap : bool
        Whether some tens of fits cost little, so that "auto" integrates.
    verbose : bool
    """

    wish: Learning
    accuracy: Accuracy
    cheap: bool
    verbose: bool = False

    def run(self, space: Space, evaluate: Evaluate, *, curvature: bool, rough: Evaluate | None = None) -> Learnt:
        """Maximise or integrate."""
        few, (gradient, gain) = self.cheap and len(space) <= FEW, self.accuracy
        if self.wish.manner == "integrate" or (self.wish.manner == "auto" and few):
            # a lattice of three, where a design is unsure, would be hundreds of fits
            method = "auto" if self.wish.manner != "auto" else "quick" if len(space) <= 2 else "composite"
            return integrate(
                space, evaluate, method=method, gradient=gradient, gain=gain, rough=rough, verbose=self.verbose
            )
        curved = curvature and len(space) <= CURVED
        return maximise(
            space, evaluate, gradient=gradient, gain=gain, curvature=curved, rough=rough, verbose=self.verbose
        )


def learn(
    problem: LinearProblem,
    engine: Engine,
    values: Mapping[str, Any],
    free: Sequence[str],
    task: LearningTask,
    start: Posterior | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> LearntFit:
    """Learn the hyperparameters `free`, starting from those in `values`, by fits of an engine.

    Fits keep their states in the files `checkpoint` and ".0", ".1", … for one after the other.
    """
    unknowns = Unknowns(problem, values, free, task.wish.priors)
    evaluate = evaluation(problem, engine, unknowns, start, checkpoint)
    rough = None
    if start is None and checkpoint is None and isinstance(engine, GaussianKL) and engine.structure == Full():
        rough = evaluation(problem, replace(engine, tol=max(engine.tol, ROUGH)), unknowns)
    return fit_of(task.run(unknowns.space, evaluate, curvature=task.cheap, rough=rough), unknowns)


def evaluation(
    problem: LinearProblem,
    engine: Engine,
    unknowns: Unknowns,
    start: Posterior | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Evaluate:
    """Fits of an engine as a function of the unknowns.

    A held fit is a dense matrix of the size of w: with fewer rows than features a fit costs less than that.
    """
    number, tall = count(), problem.design.dim <= problem.observed.n_rows

    def evaluate(numbers: dict[str, float], before: Any, slopes: bool) -> Evaluation:
        found = unknowns.assembled(numbers)
        file = None if checkpoint is None else f"{os.fspath(checkpoint)}.{next(number)}"
        posterior = engine.run(problem.model(found), start=start if before is None else before, checkpoint=file)
        gradient = unknowns.slopes(slopes_of(problem, posterior, found)) if slopes else None

        def held(others: dict[str, float]) -> Mapping[str, float]:
            values = unknowns.assembled(others)
            model = problem.model(values)
            moved = replace(posterior, model=model, density=density_under(model, posterior))
            return unknowns.slopes(slopes_of(problem, moved, values))

        return Evaluation(posterior.log_evidence, gradient, posterior, held if tall else None)

    return evaluate


def slopes_of(problem: LinearProblem, posterior: Posterior, values: Mapping[str, Any]) -> dict[str, Any]:
    """∂ log Z / ∂ hyperparameter, re-optimised; one number per feature for "prior_scale"."""
    slopes = evidence_gradient(posterior)
    found, names = slopes.sites[-1], problem.family.parameters
    likelihood = {n: found[n] if np.ndim(values[n]) else float(np.sum(found[n])) for n in names}
    return {**likelihood, **problem.prior.gradient(problem.design, values, slopes)}


def fit_of(learnt: Learnt, unknowns: Unknowns) -> LearntFit:
    """What was learnt, as a fit: one posterior, or the average of several."""
    shares: tuple[LearntShare, ...] = ()
    if learnt.table.manner == "integrated":
        shares = tuple(LearntShare(part.share, unknowns.assembled(part.values)) for part in learnt.components)
    values = unknowns.assembled(learnt.values)
    return LearntFit(averaged_posterior(learnt), values, learnt.n_fits, shares, learnt.table)


def fixed_table(values: Mapping[str, Any]) -> HyperparameterTable:
    """The table of hyperparameters that were given."""
    single = {ARGUMENTS.get(name, name): value for name, value in values.items() if np.ndim(value) == 0}
    return HyperparameterTable([row_of(name, float(v), None, 0, "given") for name, v in single.items()], "fixed")


def default_priors(problem: LinearProblem, values: Mapping[str, Any], ranges: Mapping[str, Range]) -> dict[str, Prior]:
    """A weakly informative prior for each hyperparameter; see the module."""
    unit = problem.unit
    found: dict[str, Prior] = {name: _vague(span, values[name]) for name, span in ranges.items()}
    size, count = problem.feature_size, np.size(values["prior_scale"])
    per_feature = np.ndim(values["prior_scale"]) > 0
    known: dict[str, Prior] = {
        "prior_scale": Gamma(2.0, 2.0 * np.sqrt(count) * size / unit) if per_feature else Gamma(2.0, size / unit),
        "scale": Gamma(2.0, 2.0 / unit),
        "df": Gamma(2.0, 0.1),
        "prior_df": Gamma(2.0, 0.1),
    }
    return found | {name: prior for name, prior in known.items() if name in found}


def _vague(span: Range, start: Any) -> Prior:
    if isinstance(span, Between):
        return Uniform(span.low, span.high)
    if isinstance(span, Above) and span.low == 0.0 and np.ndim(start) == 0:
        return LogNormal(float(np.log(start)), WIDE)
    return Flat()


def _cut_members(shown: str, cuts: Any, span: Increasing, given: Prior | None) -> list[Hyperparameter]:
    """The first cut point, even over where it is sought, and the gaps, unless the user gave a prior for all."""
    bounds = span.bounds(len(cuts))
    centre = Uniform(-span.reach, span.reach) if given is None else given
    members = [Hyperparameter(f"{shown}[0]", float(cuts[0]), centre, (-np.inf, np.inf), bounds[0])]
    for k, gap in enumerate(np.diff(cuts), start=1):
        prior = HalfStudentT(4.0, 2.5) if given is None else given
        low, high = (float(np.exp(end)) for end in bounds[k])
        members.append(
            Hyperparameter(f"{shown}[{k}] - {shown}[{k - 1}]", float(gap), prior, (0.0, np.inf), (low, high))
        )
    return members


def _support(span: Range) -> tuple[float, float]:
    if isinstance(span, Between):
        return span.low, span.high
    return (span.low, np.inf) if isinstance(span, Above) else (-np.inf, np.inf)


def _ends(span: Range) -> tuple[float, float]:
    low, high = span.from_free(np.array(span.bounds(1)[0]))
    return float(low), float(high)


def _within(value: float, ends: tuple[float, float]) -> float:
    return float(np.clip(value, *ends))
