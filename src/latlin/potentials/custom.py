"""A potential of one's own: nothing but a vectorised log density."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics.options import float_array
from latlin.potentials.base import Array, ExpectedLog, Potential
from latlin.potentials.checks import finite, positive


class Custom(Potential):
    """φ(x) = exp(log_density(x, *args)), everything else by quadrature and central differences.

    Parameters
    ----------
    log_density : callable
        Takes x of shape (..., sites), and `args`, returns log φ elementwise.
    args : sequence of scalars or array_like of shape (sites,)
        What differs between sites, such as observations.
    loc, scale : float or array_like of shape (sites,), default 0 and 1
        Where log φ bends (a kink belongs at `loc`) and over which distance.
    log_concave, super_gaussian, smooth : bool
        What is known of log φ: that it is concave; that it is even about `loc` and convex in (x − loc)²; that it
        has two continuous derivatives. They are believed.

    Notes
    -----
    For a log φ that is analytic within `scale` of the real line (apart from a kink at `loc`) and for standard
    deviations of at least 1e-3·scale, `expected_log` is accurate to 1e-8 in units of max(1, |log φ|) and
    `scale`, and `tilted_moments` to 1e-10. Below that the derivatives of the expected log lose digits like
    1e-16/var. `derivatives` are central differences over ±0.4·scale, good to about 1e-9, and meaningless near a kink.

    Examples
    --------
    >>> sech = Custom(lambda x: -np.log(np.cosh(x)), log_concave=True)
    >>> float(sech.expected_log(0.0, 1.0).value.round(6))
    -0.374567
    """

    parameters = ("function", "loc", "scale")

    function: Callable[..., Array]
    loc: Array
    scale: Array

    def __init__(
        self,
        log_density: Callable[..., Any],
        args: Sequence[ArrayLike] = (),
        loc: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        *,
        log_concave: bool = False,
        super_gaussian: bool = False,
        smooth: bool = True,
    ) -> None:
        if not callable(log_density):
            raise ValueError(f"log_density must be callable, got {log_density!r}")
        if not isinstance(args, Sequence | np.ndarray) or isinstance(args, str):
            raise ValueError(f"args must be a sequence, one number or array for each argument, got {args!r:.80}")
        extra = {f"argument{i}": finite(f"args[{i}]", value) for i, value in enumerate(args)}
        self._store(
            arrays=("loc", "scale", *extra),
            function=log_density,
            loc=finite("loc", loc),
            scale=positive("scale", scale),
            log_concave=log_concave,
            super_gaussian=super_gaussian,
            smooth=smooth,
            **extra,
        )

    def log_density(self, x: ArrayLike) -> Array:
        x = float_array("x", x)
        extra = [getattr(self, name) for name in self.arrays[2:]]
        value = np.asarray(self.function(x, *extra))
        if np.iscomplexobj(value):
            raise ValueError(f"log_density must be real, got {value.dtype}, at x = {x.flat[0]:g} among others")
        value = value.astype(float, copy=False)
        if value.shape != np.broadcast_shapes(x.shape, *(part.shape for part in extra)):
            raise ValueError(f"log_density must work elementwise: x of shape {x.shape} gave {value.shape}")
        if np.any(np.isnan(value)):
            raise ValueError(f"log_density gave NaN, at x = {x.flat[np.isnan(value).argmax() % x.size]:g}")
        return value

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        return ExpectedLog(*self._in_blocks(Potential._weighted_block, m, v))

    def observe(self, y: ArrayLike) -> NoReturn:
        raise ValueError("Custom does not know its observation: make a new one, with other args")
