"""Draws of the posterior of a process: its unknowns, and the latent function at the training rows for ArviZ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from latlin.diagnostics.inference_data import inference_data
from latlin.gp.latent import Process
from latlin.gp.learning import AveragedProcess
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.class_links import CLASS_LINKS, ClassLink

#: draws of the latent functions behind the interval of a softmax, numbers that are made at a time, and bisections
DRAWS, NUMBERS, BISECTIONS = 2000, 4 * 10**6, 50


class ProcessDraws:
    """Draws of a fitted process; `_of_classes` has one process, or one per class."""

    #: all classes share one likelihood
    _softmax = False
    if TYPE_CHECKING:
        link: Any
        random_state: RandomState
        _of_classes: list[Any]

    def sample_posterior(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draws of the unknowns, in the order of the posterior.

        They are the latent function at the training inputs (Vecchia: at the distinct ones), whitened values at the
        inducing inputs, or the states of a line. `to_arviz` has the latent function at all training rows.

        Returns
        -------
        ndarray of shape (n_samples, unknowns) or, for several classes, (n_samples, n_classes, unknowns)
        """
        check_is_fitted(self)
        rng, count = self._generator(random_state), check_whole("n_samples", n_samples)
        draws = [process.posterior.sample(count, rng) for process in self._of_classes]
        return draws[0] if len(draws) == 1 else np.stack(draws, axis=1)

    def to_arviz(self, n_samples: int = 1000, random_state: RandomState = None) -> Any:
        """Draws as an `arviz.InferenceData` (of ArviZ 1, a `DataTree`).

        Groups: posterior ("latent", the latent function at the training rows, with an axis of classes where these
        share one softmax; the hyperparameters, where they are integrated, in the coordinates of `theta_`),
        log_likelihood and observed_data ("y"). A
        list of them, one per class, for classes against the rest. Needs ArviZ and the training rows in memory.
        """
        check_is_fitted(self)
        rng, count = self._generator(random_state), check_whole("n_samples", n_samples, 1)
        if self._softmax:
            return _held(_joint_groups(self._of_classes, CLASS_LINKS[self.link], count, rng))
        found = [_held(_groups(process, count, rng)) for process in self._of_classes]
        return found[0] if len(found) == 1 else found

    def _generator(self, random_state: RandomState) -> np.random.Generator:
        return generator(self.random_state if random_state is None else random_state)


class ClassDraws(ProcessDraws):
    """Draws of labels, and what the posterior says about their probabilities."""

    if TYPE_CHECKING:
        classes_: Array

        def _checked(self, X: Any) -> Array: ...

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """The central posterior interval of the probability of the second class of two: columns low and high.

        Several classes: of each class, shape (n_samples, n_classes, 2); against the rest they are not normalised, and
        of a joint fit they are quantiles of 2,000 draws, the same for every row and every call.
        """
        new, ends = self._checked(X), central_levels(coverage)
        if not self._softmax:
            found = [self._probability(_latent_quantiles(process, new, ends)) for process in self._of_classes]
            return found[0] if len(found) == 1 else np.stack(found, axis=1)
        mean, variance = (
            np.stack(part, axis=1) for part in zip(*(p.marginals(new) for p in self._of_classes), strict=True)
        )
        noise = np.random.default_rng(0).standard_normal((DRAWS, mean.shape[1]))
        rows = max(1, NUMBERS // noise.size)
        parts = [slice(first, first + rows) for first in range(0, len(mean), rows)]
        link = CLASS_LINKS[self.link]
        each = [np.exp(_given(link, mean[part, None] + np.sqrt(variance[part, None]) * noise)) for part in parts]
        return np.concatenate([np.moveaxis(np.quantile(draws, ends, axis=1), 0, -1) for draws in each])

    def sample_y(self, X: Any, n_samples: int = 1, random_state: RandomState = 0) -> Any:
        """Joint draws of labels at new inputs, of shape (n_rows, n_samples)."""
        new, rng, count = self._checked(X), generator(random_state), check_whole("n_samples", n_samples)
        f = np.stack([process.sample_latent(new, count, rng) for process in self._of_classes], axis=-1)
        if self._softmax:
            # the class is that of the largest latent number with its noise
            return self.classes_[np.argmax(f + CLASS_LINKS[self.link].noise(rng, f.shape), axis=-1)].T
        one = self._probability(f)
        table = np.concatenate([1.0 - one, one], axis=-1) if f.shape[-1] == 1 else one / one.sum(axis=-1, keepdims=True)
        below = np.cumsum(table, axis=-1)[..., :-1]
        return self.classes_[np.sum(rng.random((*f.shape[:2], 1)) > below, axis=-1)].T

    def _probability(self, f: Array) -> Array:
        """P(label one | f) under the link."""
        template = self._of_classes[0].setting.likelihood.template
        return np.asarray(template.predictive(f, np.zeros_like(f)).mean)


def central_levels(coverage: float) -> tuple[float, float]:
    """Levels of the ends of a central interval."""
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}")
    return 0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage


def _latent_quantiles(process: Process | AveragedProcess, new: Array, levels: tuple[float, ...]) -> Array:
    """Quantiles of the latent function at new inputs, shape (n, levels); those of an average by bisection."""
    q = np.asarray(levels)
    parts, weights = (
        (process.parts, process.weights) if isinstance(process, AveragedProcess) else ((process,), np.ones(1))
    )
    mean, sd = (
        np.stack(part)[..., None]
        for part in zip(*((m, np.sqrt(v)) for m, v in (p.marginals(new) for p in parts)), strict=True)
    )
    ends = mean + sd * norm.ppf(q)
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(BISECTIONS if len(parts) > 1 else 0):
        middle = 0.5 * (low + high)
        below = np.tensordot(weights, norm.cdf((middle - mean) / sd), axes=1) < q
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


def _held(groups: dict[str, dict[str, Array]]) -> Any:
    return inference_data(groups, {}, {})


def _groups(process: Process | AveragedProcess, count: int, rng: np.random.Generator) -> dict[str, dict[str, Array]]:
    """Groups of arrays with leading axes (chain, draw)."""
    parts, label = _parts(process, count, rng)
    latent, likelihood, first = [], [], None
    for part, number in zip(parts, np.bincount(label, minlength=len(parts)), strict=True):
        model = _rows_of(part.posterior)
        latent.append(latent_at_rows(part.posterior, int(number), rng))
        likelihood.append(model.sites[0].potential.log_density(latent[-1]))
        first = model.sites[0].potential.observed if first is None else first
    assert first is not None  # there is one part at least
    order = np.argsort(label, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(count)
    posterior = {"latent": np.concatenate(latent)[place][None]}
    if isinstance(process, AveragedProcess):
        theta = np.stack([part.setting.theta for part in parts])
        posterior |= {name: theta[label, j][None] for j, name in enumerate(process.table.names)}
    return {
        "posterior": posterior,
        "log_likelihood": {"y": np.concatenate(likelihood)[place][None]},
        "observed_data": {"y": np.broadcast_to(first, latent[0].shape[1])},
    }


def _parts(process: Process | AveragedProcess, count: int, rng: np.random.Generator) -> tuple[tuple[Process, ...], Any]:
    """The processes of an average, and of which of them each draw is."""
    if not isinstance(process, AveragedProcess):
        return (process,), np.zeros(count, int)
    return process.parts, rng.choice(len(process.weights), size=count, p=process.weights)


def _rows_of(posterior: Posterior) -> LatentLinearModel:
    """The model of a posterior, with its rows."""
    model = posterior.model
    if not isinstance(model, LatentLinearModel):
        raise ValueError("to_arviz needs the training rows in memory, got a process of rows in blocks")
    return model


def latent_at_rows(posterior: Posterior, count: int, rng: np.random.Generator) -> Array:
    """Draws of the latent function at the training rows: f_n = h_nᵀw + offset + ε_n, one per row of the result."""
    factor, w = _rows_of(posterior).sites[0], posterior.sample(count, rng)
    f = w if factor.H is None else np.asarray(factor.H @ w.T).T
    if factor.offset is not None:
        f = f + factor.offset
    if factor.extra_variance is not None:
        f = f + np.sqrt(factor.extra_variance) * rng.standard_normal(f.shape)
    return np.asarray(f)


def _given(link: ClassLink, f: Array) -> Array:
    """log P(y = k | f) of latent functions that are known, classes on the last axis."""
    flat = f.reshape(-1, f.shape[-1])
    return link.log_probabilities(flat, np.zeros_like(flat)).reshape(f.shape)


def _joint_groups(
    classes: list[Any], link: ClassLink, count: int, rng: np.random.Generator
) -> dict[str, dict[str, Array]]:
    """Those of several classes with one link."""
    y = np.asarray(classes[0].fitter.y).astype(int)
    f = np.stack([np.concatenate(draws) for draws in _of_parts(classes, count, rng)], axis=-1)
    log_p = np.take_along_axis(_given(link, f), np.broadcast_to(y[:, None], (*f.shape[:2], 1)), axis=2)[:, :, 0]
    return {"posterior": {"latent": f[None]}, "log_likelihood": {"y": log_p[None]}, "observed_data": {"y": y}}


def _of_parts(classes: list[Any], count: int, rng: np.random.Generator) -> list[list[Array]]:
    """Draws of every class, part by part of an average, the same parts for all classes."""
    _, label = _parts(classes[0], count, rng)
    each = [_parts(process, 0, rng)[0] for process in classes]
    numbers = np.bincount(label, minlength=len(each[0]))
    return [[latent_at_rows(p.posterior, int(n), rng) for p, n in zip(parts, numbers, strict=True)] for parts in each]
