"""Hyperparameters of Gaussian processes: their names and priors, and averages over their posterior.

A scikit-learn kernel moves in the logarithms of its parameters, and a likelihood in the free coordinates of its ranges;
both are the coordinates of `latlin.hyper`. Default priors are weakly informative in the units of the data:

    length scales          log-normal about the spread of the inputs, a factor e^1.5 either way
    constants (variances)  log-normal about the mean square of y (4 where the latent function is no mean), likewise
    noise_scale            integrated: log-normal about 0.3 standard deviations of y, where its search starts, likewise;
                           maximised: gamma of shape 2, its mean the standard deviation of y, which keeps an optimum
                           away from zero (Chung and others, 2013) but would widen an average
    anything else          log-normal about its start, a factor e² either way; uniform between two ends
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import logsumexp

from latlin.densities.density import Mixture
from latlin.gp.approximation import Approximation, Fitter, LatentFunction
from latlin.gp.latent import Process
from latlin.gp.search import Found, Journal, maximise_evidence
from latlin.gp.setting import FIRST_SCALE, Setting, target_scale
from latlin.gp.training import Training
from latlin.hyper.learn import Learnt, averaged_posterior, integrate
from latlin.hyper.marginals import HyperparameterTable, row_of
from latlin.hyper.optimum import bound_message, find_ends
from latlin.hyper.space import Evaluation, Hyperparameter, Space
from latlin.inference.diagnosis.log_joint import AveragedModel
from latlin.inference.engine import Engine
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array, reuse_memory
from latlin.numerics.options import check_choice
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.stored import storable_as
from latlin.numerics.threads import blas_threads_for
from latlin.potentials.averaged import AveragedPredictive
from latlin.potentials.predictive import Predictive
from latlin.potentials.ranges import Above, Between, Increasing
from latlin.priors import Flat, Gamma, HalfStudentT, LogNormal, Prior, Uniform

Manner = Literal["auto", "maximise", "integrate", "fixed"]
#: most rows and hyperparameters that "auto" integrates
ROWS, FEW = 200, 8
#: sd of logarithms: of sizes that the data suggest, and of anything else
KNOWN, WIDE = 1.5, 2.0


class Wish(NamedTuple):
    """What a user asked for."""

    manner: Manner
    priors: Mapping[str, Prior] | Prior | None

    def integrates(self, rows: int, count: int) -> bool:
        """Whether an average is wanted, or cheap."""
        return self.manner == "integrate" or (self.manner == "auto" and rows <= ROWS and 0 < count <= FEW)


def check_search(manner: Any, priors: Any) -> Wish:
    """The checked wish."""
    check_choice("hyperparameters", manner, get_args(Manner))
    if priors is not None and not isinstance(priors, Prior | Mapping):
        raise ValueError(f"priors must map names of hyperparameters to latlin.priors, got {priors!r:.80}")
    return Wish(manner, priors)


def space_of(
    setting: Setting, X: Array, y: Array, priors: Mapping[str, Prior] | Prior | None, averaged: bool = False
) -> Space | None:
    """The free parameters of kernel and likelihood by name, in the order of `setting.theta`; None without any."""
    defaults = [*_of_kernel(setting, X, y), *_of_likelihood(setting, y, averaged)]
    if not defaults:
        return None
    names = [name for name, *_ in defaults]
    whole = {name.partition("[")[0] for name in names}
    if isinstance(priors, Mapping) and (strange := sorted(set(priors) - set(names) - whole)):
        raise ValueError(f"priors names {', '.join(map(repr, strange))}; hyperparameters are {', '.join(names)}")
    members = []
    for (name, support, prior), t, ends in zip(defaults, setting.theta, setting.bounds, strict=True):
        given = (
            priors
            if isinstance(priors, Prior)
            else (priors or {}).get(name, (priors or {}).get(name.partition("[")[0]))
        )
        free = Hyperparameter(name, _value(support, float(t)), Flat(), support, None)
        low, high = (float(free.value(float(end))) for end in ends)
        start = float(np.clip(_value(support, float(t)), low, high))
        members.append(Hyperparameter(name, start, prior if given is None else given, support, (low, high)))
    return Space(members)


def _value(support: tuple[float, float], t: float) -> float:
    middle = Hyperparameter("", _inside(support), Flat(), support)
    return float(middle.value(t))


def _inside(support: tuple[float, float]) -> float:
    low, high = support
    return 0.5 * (low + high) if np.isfinite(low + high) else low + 1.0 if np.isfinite(low) else 0.0


def _of_kernel(setting: Setting, X: Array, y: Array) -> list[tuple[str, tuple[float, float], Prior]]:
    """Name, support and default prior of each free number of the kernel."""
    location = setting.likelihood.template.observation[0] == "loc"
    size = float(np.mean(y**2)) or 1.0 if location and setting.amplitude == 1.0 else 1.0 if location else 4.0
    widths = np.where(X.std(axis=0) > 0.0, X.std(axis=0), 1.0)
    found: list[tuple[str, tuple[float, float], Prior]] = []
    for parameter in setting.kernel.hyperparameters:
        if parameter.fixed:
            continue
        last = parameter.name.rpartition("__")[2]
        start = np.atleast_1d(setting.kernel.get_params()[parameter.name])
        for j in range(parameter.n_elements):
            name = parameter.name if parameter.n_elements == 1 else f"{parameter.name}[{j}]"
            width = float(np.sqrt(np.mean(widths**2)) if parameter.n_elements == 1 else widths[j % len(widths)])
            known = {"length_scale": width, "constant_value": size}
            prior = LogNormal(np.log(known[last]), KNOWN) if last in known else LogNormal(np.log(start[j]), WIDE)
            found.append((name, (0.0, np.inf), prior))
    return found


def _of_likelihood(setting: Setting, y: Array, averaged: bool) -> list[tuple[str, tuple[float, float], Prior]]:
    found: list[tuple[str, tuple[float, float], Prior]] = []
    for name, span in setting.likelihood.ranges:
        value = setting.likelihood.template.value_of(name)
        if isinstance(span, Increasing):
            found.append((f"{name}[0]", (-np.inf, np.inf), Uniform(-span.reach, span.reach)))
            gaps = [f"{name}[{k}] - {name}[{k - 1}]" for k in range(1, np.size(value))]
            found += [(gap, (0.0, np.inf), HalfStudentT(4.0, 2.5)) for gap in gaps]
        elif isinstance(span, Between):
            found.append((name, (span.low, span.high), Uniform(span.low, span.high)))
        elif isinstance(span, Above):
            found.append((*_scale_or_shape(name, span, float(value), y, averaged),))
        else:
            found.append((name, (-np.inf, np.inf), Flat()))
    return found


def _scale_or_shape(
    name: str, span: Above, value: float, y: Array, averaged: bool
) -> tuple[str, tuple[float, float], Prior]:
    if name == "scale":
        unit = target_scale(y)
        noise = LogNormal(float(np.log(FIRST_SCALE * unit)), KNOWN) if averaged else Gamma(2.0, 2.0 / unit)
        return "noise_scale", (0.0, np.inf), noise
    support = (span.low, np.inf)
    if name == "df":
        return name, support, Gamma(2.0, 0.1)
    return name, support, LogNormal(float(np.log(value)), WIDE) if value > 0.0 else Flat()


class Search(NamedTuple):
    """How a first search goes: see `maximise_evidence`."""

    approximation: Approximation
    engine: Engine
    optimizer: Any
    n_restarts: int
    max_iter: int
    #: why this approximation, for the message
    reason: str = ""
    journal: Journal | None = None


def fit_process(
    setting: Setting, data: Training, search: Search, rng: np.random.Generator, wanted: Wish, verbose: bool
) -> tuple[Process | AveragedProcess, HyperparameterTable]:
    """The process with its hyperparameters maximised or integrated, and their table."""
    # kernels and gradients between the fits are as small as these: threads of BLAS would spin beside them
    with blas_threads_for(search.approximation.longest_product(data.n_rows)), reuse_memory():
        return _learnt_process(setting, data, search, rng, wanted, verbose)


def _learnt_process(
    setting: Setting, data: Training, search: Search, rng: np.random.Generator, wanted: Wish, verbose: bool
) -> tuple[Process | AveragedProcess, HyperparameterTable]:
    optimizer = None if wanted.manner == "fixed" else search.optimizer
    averaged = wanted.integrates(data.n_rows, len(setting.theta))
    space = None if optimizer is None else space_of(setting, *_units(data), wanted.priors, averaged)
    fitter, found = _search(setting, data, search, optimizer, rng, verbose, space)
    if space is None:
        return Process(fitter, found), HyperparameterTable([], "fixed")
    learnt_elsewhere = wanted.manner == "auto" and getattr(fitter, "settled", False)
    if averaged and not learnt_elsewhere:
        values = space.values(found.setting.theta)
        there = Space([replace(m, start=values[m.name]) for m in space.members])
        process = average(found, there, fitter, wanted, verbose)
        return process, process.table
    table, caution = maximised_table(found.setting, space)
    latent = found.latent.with_posterior(replace(found.latent.posterior, caution=caution))
    message = "; ".join(filter(None, (found.message, caution[1] if caution else "")))
    return Process(fitter, replace(found, latent=latent, message=message)), table


def _units(data: Training) -> tuple[Array, Array]:
    """Inputs and targets, labels as zeros and ones, from which priors take their units."""
    return data.X, data.y if data.one is None else (data.y == data.one).astype(float)


def _search(
    setting: Setting,
    data: Training,
    search: Search,
    optimizer: Any,
    rng: np.random.Generator,
    verbose: bool,
    space: Space | None,
) -> tuple[Fitter, Found]:
    """The best parameters, sought again, from where the search ended, each time the fitter can be refined."""
    steps = (optimizer, search.n_restarts, search.max_iter, rng, verbose, space)
    fitter = data.prepare(search.approximation, setting, search.engine, rng, verbose)
    if search.journal is not None:
        setting, fitter = search.journal.resumed(setting, fitter)
    found = maximise_evidence(setting, fitter, *steps, None, search.journal)
    while (better := fitter.refined(found.latent)) is not None:
        fitter, before = better, found
        if getattr(fitter, "settled", False):
            latent = fitter.fit(before.setting, before.latent, verbose)
            found = replace(before, latent=latent, converged=before.converged and latent.posterior.converged)
            continue
        found = maximise_evidence(before.setting, fitter, optimizer, 0, *steps[2:], before, search.journal)
        found = replace(found, trace=np.concatenate([before.trace, found.trace]), n_iter=before.n_iter + found.n_iter)
    said = (found.message, getattr(fitter, "note", ""), search.reason)
    return fitter, replace(found, message="; ".join(filter(None, said)))


def average(found: Found, space: Space, fitter: Fitter, wanted: Wish, verbose: bool) -> AveragedProcess:
    """The process averaged over the posterior of its hyperparameters, searched from where a first search ended."""
    setting = found.setting

    def evaluate(values: dict[str, float], before: Any, slopes: bool) -> Evaluation:
        theta = np.array([m.coordinate(values[m.name]) for m in space.members])
        here = setting.at(theta)
        if not slopes:
            latent = fitter.fit(here, before)
            return Evaluation(latent.posterior.log_evidence, None, latent)
        latent, gradient = fitter.fit_with_gradient(here, before)
        by_name = {m.name: g / m.slope(t) for m, g, t in zip(space.members, gradient, theta, strict=True)}
        return Evaluation(latent.posterior.log_evidence, by_name, latent)

    # fits of a process are dear: no lattice of many points where a design is unsure, which is then said
    method = "composite" if wanted.manner == "auto" and len(space) > 1 else "auto"
    learnt = integrate(space, evaluate, method=method, verbose=verbose)
    parts = tuple(_process(c.values, c.fit, space, found, fitter) for c in learnt.components)
    return AveragedProcess(parts, *_numbers(learnt))


def _process(
    values: Mapping[str, float], latent: LatentFunction, space: Space, found: Found, fitter: Fitter
) -> Process:
    setting = found.setting.at(np.array([m.coordinate(values[m.name]) for m in space.members]))
    post = latent.posterior
    return Process(fitter, Found(setting, latent, post.trace, post.converged, post.n_iter, post.message))


def _numbers(learnt: Learnt) -> tuple[Any, ...]:
    fits = tuple(c._replace(fit=c.fit.posterior) for c in learnt.components)
    whole = averaged_posterior(replace(learnt, components=fits))
    weights, logs = (np.array([getattr(c, name) for c in fits]) for name in ("share", "log_weight"))
    said = {
        name: getattr(whole, name) for name in ("log_evidence", "evidence_kind", "message", "bound_error", "caution")
    }
    return weights, logs, said, learnt.table


def maximised_table(setting: Setting, space: Space) -> tuple[HyperparameterTable, tuple[str, str] | None]:
    """The table at an optimum, and a word where one stands at an end of its search."""
    sides = find_ends(space, setting.theta)
    values = space.values(setting.theta)
    rows = [
        row_of(m.name, values[m.name], None, int(side), repr(m.prior))
        for m, side in zip(space.members, sides, strict=True)
    ]
    said = bound_message(space, sides, values, "integrate over it, give it a prior or other bounds, or fix it")
    return HyperparameterTable(rows, "maximised"), ("wrong", said) if said else None


@dataclass(frozen=True)
class AveragedProcess:
    """Processes at several hyperparameters with weights; answers as one `Process` does.

    Parameters
    ----------
    parts : tuple of Process
    weights, log_weights : ndarray of shape (K,)
        Shares of the parts, and logarithms of quadrature weight × prior density.
    numbers : dict
        log_evidence, evidence_kind, message, bound_error and caution of the average.
    table : HyperparameterTable
    """

    parts: tuple[Process, ...]
    weights: Array
    log_weights: Array
    numbers: Mapping[str, Any]
    table: HyperparameterTable

    @property
    def fitter(self) -> Fitter:
        return self.parts[0].fitter

    @property
    def X(self) -> Array:
        return self.fitter.X

    @property
    def _middle(self) -> int:
        return int(np.argmax(self.weights))

    @property
    def found(self) -> Found:
        """That of the part of largest weight."""
        return self.parts[self._middle].found

    @property
    def setting(self) -> Setting:
        return self.found.setting

    @cached_property
    def posterior(self) -> Posterior:
        """Over the latent function at the training inputs."""
        each = [part.found.latent.posterior for part in self.parts]
        centre = each[self._middle]
        return Posterior(
            model=AveragedModel([p.model for p in each], self.log_weights, self._middle),
            density=Mixture(self.weights, tuple(p.density for p in each)),
            engine=centre.engine,
            converged=all(p.converged for p in each),
            n_iter=sum(p.n_iter for p in each),
            trace=centre.trace,
            elapsed=sum(p.elapsed for p in each),
            **self.numbers,
        )

    def marginals(self, new: Array) -> tuple[Array, Array]:
        """Means and variances of the latent function at new inputs."""
        means, variances = (np.stack(each) for each in zip(*(part.marginals(new) for part in self.parts), strict=True))
        mean = self.weights @ means
        return mean, self.weights @ (variances + (means - mean) ** 2)

    def means(self, new: Array) -> Array:
        return np.asarray(self.weights @ np.stack([part.means(new) for part in self.parts]))

    def covariance(self, new: Array) -> Array:
        """Covariance of the latent function at new inputs."""
        mean, total = self.means(new), np.zeros((len(new), len(new)))
        for weight, part in zip(self.weights, self.parts, strict=True):
            apart = part.means(new) - mean
            total += weight * (part.covariance(new) + np.outer(apart, apart))
        return total

    def predictive(self, new: Array, beside: Mapping[str, Array] | None = None) -> Predictive:
        """The distribution of new observations."""
        return AveragedPredictive(self.weights, [part.predictive(new, beside) for part in self.parts])

    def log_density(self, new: Array, y: Array) -> Array:
        """log p(y | training rows) of new observations with what belongs to them, shape (n, columns)."""
        each = np.stack([part.log_density(new, y) for part in self.parts])
        return np.asarray(logsumexp(np.log(self.weights)[:, None] + each, axis=0))

    def sample(
        self,
        new: Array,
        count: int,
        random_state: RandomState,
        beside: Mapping[str, Array] | None = None,
    ) -> Array:
        """Joint draws of new observations, one per row."""
        return self._drawn("sample", new, count, random_state, beside)

    def sample_latent(self, new: Array, count: int, random_state: RandomState) -> Array:
        """Joint draws of the latent function, one per row."""
        return self._drawn("sample_latent", new, count, random_state)

    def _drawn(self, what: str, new: Array, count: int, random_state: RandomState, *beside: Any) -> Array:
        rng = generator(random_state)
        label = rng.choice(len(self.weights), size=count, p=self.weights)
        draws = np.empty((count, len(new)))
        for k in np.unique(label):
            draws[label == k] = getattr(self.parts[k], what)(new, int(np.sum(label == k)), rng, *beside)
        return draws

    def leave_one_out(self) -> Array:
        """log p(y_n | all other y) = −log Σ_k weight_k / p_k(y_n | all other y), which is exact for the average."""
        each = np.stack([part.found.latent.leave_one_out() for part in self.parts])
        return np.asarray(-logsumexp(np.log(self.weights)[:, None] - each, axis=0))


storable_as(
    AveragedProcess,
    lambda process: {n: getattr(process, n) for n in AveragedProcess.__dataclass_fields__},
    AveragedProcess,
)
