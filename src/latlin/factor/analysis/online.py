"""From the estimator's options to a stream, and a fit by passes over data in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from latlin.factor.analysis.stream import FactorStream, OnlineEM, Rule, StepSizes
from latlin.factor.analysis.stream_gradient import Adam, LastIterate, PlainGradient, ScaledGradient, TailAverage
from latlin.factor.fit import Fit
from latlin.numerics.progress import progress


def _expectation_maximisation(options: Any, isotropic: bool) -> Rule:
    return OnlineEM(StepSizes(options.step_offset, options.step_power), options.noise_floor, isotropic)


def _gradient(options: Any, isotropic: bool) -> Rule:
    averaging = TailAverage() if options.average else LastIterate()
    rate = {} if options.learning_rate is None else {"learning_rate": options.learning_rate}
    if options.optimizer == "scaled":
        steps = StepSizes(options.step_offset, options.step_power)
        return ScaledGradient(steps, averaging=averaging, isotropic=isotropic, **rate)
    if options.optimizer == "sgd":
        return PlainGradient(averaging=averaging, isotropic=isotropic, **rate)
    if options.optimizer == "adam":
        return Adam(averaging=averaging, isotropic=isotropic, **rate)
    raise ValueError(f"optimizer must be 'scaled', 'sgd' or 'adam', got {options.optimizer!r}")


RULES: dict[str, Callable[[Any, bool], Rule]] = {
    "online-em": _expectation_maximisation,
    "gradient": _gradient,
}


def open_stream(options: Any, dim: int, dtype: np.dtype) -> FactorStream:
    """A stream as the estimator's parameters describe it."""
    rule = RULES[options.method](options, options.noise == "isotropic")
    return FactorStream(dim, options.n_components, rule, warm_up=options.warm_up, dtype=dtype)


def feed(stream: FactorStream, rows: np.ndarray, batch_size: int) -> None:
    """Give the rows to the stream in blocks of `batch_size`."""
    for start in range(0, len(rows), batch_size):
        stream.update(rows[start : start + batch_size])


def stream_fit(stream: FactorStream, rows: np.ndarray, options: Any, random: np.random.Generator) -> Fit:
    """`n_passes` over the rows, in random order when `shuffle`; the trace has the log-likelihood after each."""
    trace = []
    with progress(f"factor analysis ({options.method})", options.n_passes, options.verbose) as bar:
        for _ in range(options.n_passes):
            order = random.permutation(len(rows)) if options.shuffle else np.arange(len(rows))
            for start in range(0, len(rows), options.batch_size):
                stream.update(rows[order[start : start + options.batch_size]])
            trace.append(float(stream.density().logpdf(rows).sum()))
            bar.advance(f"log-likelihood {trace[-1]:.6g}")
    mean, loadings, noise = (np.array(part, dtype=np.float64) for part in stream.density())
    text = f"{options.n_passes} pass(es) over {len(rows)} rows"
    return Fit(mean, loadings, noise, np.array(trace), True, stream.count, text)
