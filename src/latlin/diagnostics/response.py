"""Which way the weights lean: a check that is left in high dimension, where too few draws count for any average.

Along q_ε ∝ q^{1−ε} p^ε the moments of q start to move by

    d⟨w⟩/dε = cov_q(w, log p/q),   d⟨(w − m)²⟩/dε = cov_q((w − m)², log p/q),

which need logs of weights only. Both vanish at the optimum of Gaussian KL; a q that is misplaced, too wide or too
narrow shows large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from latlin.numerics.arrays import Array


class Response(NamedTuple):
    """Largest movements that are certain: of a mean, in sd of q, and of the log of a variance."""

    mean: float
    log_variance: float


def response(
    blocks: Iterator[tuple[slice, Array]], log_weights: Array, mean: Array, variance: Array, margin: float
) -> Response:
    """From draws of q; a certain movement exceeds its noise by `margin` standard errors."""
    finite = np.isfinite(log_weights)
    if finite.sum() < 2:
        return Response(np.inf, np.inf)
    logs = np.where(finite, log_weights, log_weights[finite].min())
    centred = (logs - logs.mean()) / len(logs)
    first, second = np.zeros_like(mean), np.zeros_like(mean)
    noise = np.zeros((2, len(mean)))
    for span, draws in blocks:
        z = (draws - mean) / np.sqrt(variance)
        square = z * z - 1.0
        c = centred[span]
        first += c @ z
        second += c @ square
        noise += np.stack([(c * c) @ (z * z), (c * c) @ (square * square)])
    error = margin * np.sqrt(noise)
    return Response(float(np.max(np.abs(first) - error[0])), float(np.max(np.abs(second) - error[1])))
