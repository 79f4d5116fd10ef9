"""What an approximation of a Gaussian process is: three small protocols, and nothing else is asked of one.

1. An `Approximation` holds the user's options ("exact", "inducing", "vecchia", "state-space", or an object with its
   options). `refusal` says in one sentence why it cannot serve a kernel, a likelihood or some rows, and `prepare` makes
   of the training rows, once, what every fit needs (inducing inputs, an order and neighbours, sorted times).
2. The `Fitter` that it prepares gives the posterior at fixed parameters, the log evidence with it, and its exact
   gradient in every free parameter of kernel and likelihood, in the order of `Setting.theta`. Priors of these
   parameters, bounds, restarts and averages are added by `latlin.gp.search` and `latlin.gp.learning`, the same for all.
   `refined` is asked after the parameters were learnt: a fitter that suits them better (more inducing points,
   neighbours in the learnt metric, more rows), with which learning goes on, or None. Four words are optional:
   `note`, for the message; `accuracy`, the relative change of the evidence at which a search ends; `settled`, where
   the parameters stay those that were learnt; and `n_rows`, by which a search that goes on with other rows knows how
   much more the evidence bends.
3. The `LatentFunction` that a fit leaves answers for the latent function at any input. Its `posterior` carries the log
   evidence, the kind of the evidence, the message and the convergence of the fit; what its coordinates are is the
   approximation's own.

Fitters and latent functions are stored with a fitted process, so both are registered with `latlin.numerics.stored`. A
name joins `APPROXIMATIONS` and the rules of `latlin.gp.choice`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from latlin.gp.setting import Setting
from latlin.inference.engine import Engine
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array


class LatentFunction(Protocol):
    """The latent function given the data, at fixed parameters."""

    @property
    def setting(self) -> Setting:
        """The parameters."""
        ...

    @property
    def posterior(self) -> Posterior:
        """With `log_evidence` and `evidence_kind` of the training targets."""
        ...

    @property
    def jitter(self) -> float:
        """What was added to the diagonal of a kernel matrix; 0 unless it was numerically singular."""
        ...

    def means(self, new: Array) -> Array:
        """Means at new inputs."""
        ...

    def marginals(self, new: Array) -> tuple[Array, Array]:
        """Means and variances at new inputs, a block of these at a time."""
        ...

    def covariance(self, new: Array) -> Array:
        """Covariance matrix at new inputs."""
        ...

    def leave_one_out(self) -> Array:
        """log p(y_n | all other y) of the training rows."""
        ...

    def with_posterior(self, posterior: Posterior) -> LatentFunction:
        """The same with another word on its posterior: a message, a caution."""
        ...


class Fitter(Protocol):
    """Training rows prepared for fits at many parameters.

    Attributes that it may have: `note`, which joins the message of the fit; `accuracy`, the relative change of the
    evidence at which a search ends; `settled`, true where no parameters are sought with this fitter; and `n_rows`, the
    rows of its fits.
    """

    @property
    def X(self) -> Array:
        """The training inputs, or what stands for them."""
        ...

    def fit(self, setting: Setting, start: Any = None, verbose: bool = False) -> Any:
        """The latent function at fixed parameters, from a latent function of neighbouring ones."""
        ...

    def fit_with_gradient(self, setting: Setting, start: Any = None) -> tuple[Any, Array]:
        """The same, and ∂ log evidence/∂theta."""
        ...

    def gradient(self, latent: Any) -> Array:
        """∂ log evidence/∂theta at a latent function that `fit` gave."""
        ...

    def refined(self, latent: Any) -> Fitter | None:
        """A fitter that suits the parameters just learnt better, or None where this one is good enough."""
        ...


class Approximation(Protocol):
    """Options of an approximation, and how training rows are prepared for it."""

    name: ClassVar[str]

    def refusal(self, setting: Setting, n_rows: int, n_columns: int) -> str:
        """Why it cannot serve, in one sentence; empty where it can."""
        ...

    def longest_product(self, n_rows: int) -> float:
        """Multiplications of the longest product of a fit, by which BLAS gets one thread or more."""
        ...

    def prepare(
        self, setting: Setting, X: Any, y: Any, engine: Engine, rng: np.random.Generator, verbose: bool = False
    ) -> Fitter:
        """Training rows made ready.

        Where an attribute `takes_blocks` is true, X may be `Blocks`, which hold their own y, and y None; one more
        argument is then the label that counts as one, or None.
        """
        ...
