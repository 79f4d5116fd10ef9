"""Inducing points as an approximation: how many, where, and in which steps the kernel is learnt.

Parameters are learnt first on a small sample of the rows and few points, at inputs that suit the first kernel; then on
larger samples, at inputs that suit the kernel just learnt, from where the last search ended: most steps are cheap. The
last sample has at most `learning_rows` rows (all of them where there are fewer than twice as many), and with
`n_inducing="auto"` the points are doubled there until the bound gains too little per point. The posterior is that of
all rows. The mathematics is in `latlin.gp.inducing_model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, get_args

import numpy as np
from scipy.optimize import minimize

from latlin.distributed.blocks import Blocks, LocalBlocks
from latlin.gp.inducing_fit import fit_inducing
from latlin.gp.inducing_gradient import BoundGradient, gradient_of
from latlin.gp.inducing_model import Basis, InducingFunction, model_of
from latlin.gp.placement import Placement, place_inputs, variance_left
from latlin.gp.setting import Setting
from latlin.gp.training import SAMPLE, count_rows, local_blocks, sample_rows
from latlin.inference.blocks import AbsentBlocks
from latlin.inference.engine import Engine
from latlin.inference.exact import Exact
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole, is_name
from latlin.numerics.stored import storable_as, storable_by_arguments

#: points from which threads of BLAS pay between the sums over rows, which have threads of their own: a fit of 20,000
#: rows by 1,000 points took 4.1 s with them and 2.8 s without, one of 10,000 rows by 2,000 points 8.7 s and 9.9 s
MANY_POINTS = 2000
#: rows of the samples on which parameters are learnt first, and points for each; a sample is at most half of the next
LADDER = ((2500, 100), (10_000, 200))
#: points at first on the last sample, and at last, where "auto" chooses
FIRST, MOST = 200, 800
#: gain of the bound per further point, in nats, below which "auto" has enough of them
ENOUGH = 0.1
#: what all points that are left out may add to the bound, in nats, where their number is given, and while parameters
#: are learnt; and the rows by which that is judged. With 100,000 rows and 500 points 0.1, 0.3 and 1 keep 257, 212 and
#: 172 points, the bound is 0.0, 0.25 and 1.0 lower, and the held-out score the same to 5e-6
UNEXPLAINED, IMPRECISE, TRIED = 0.3, 1.0, 2000
#: rows from which on points are left out while parameters are learnt, where their number is given, and how many are
#: taken at most: a step costs as many rows times their square
MANY, LEARNING_POINTS = 10_000, 200
#: largest gradient entry of the bound in the whitened coordinates while parameters are learnt, and on all rows after
#: it; or, whichever is first, what the bound may gain yet, in nats, on all rows where a product N·M² is as dear, and on
#: a sample from whose posterior that of all rows begins
LOOSE, SETTLED, GAP, ROUGH, DEAR = 0.1, 1e-3, 0.03, 1.0, 1e9


@storable_by_arguments
@dataclass(frozen=True, eq=False)
class Inducing:
    """Inducing points: the cost of a pass grows with N·M², and the evidence is a lower bound on the exact one.

    Parameters
    ----------
    n_inducing : int or "auto"
        Points M, or fewer where these explain all rows: where the others together would raise the bound by less than
        0.3. "auto" doubles them, up to 800, until the bound gains less than 0.1 per further point.
    inputs : {"conditional-variance", "k-means++"} or array of shape (M, n_features)
        Where they stand: at rows that those before explain least (Burt, Rasmussen and van der Wilk, 2019), spread by
        k-means++, or where an array says.
    moves : int
        Steps in which a gradient moves the inducing inputs, after the kernel was learnt.
    learning_rows : int or None
        Rows from which kernel and likelihood parameters are learnt, drawn at random where there are more than twice as
        many; None takes all. Learning P parameters from n rows costs about P/2n of the log probability per row.

    Notes
    -----
    For engines "gkl" and "exact". White noise in the kernel is not explained by any input; put noise into the
    likelihood.

    Examples
    --------
    >>> from latlin.gp import GaussianProcessRegressor, Inducing
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, (500, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> model = GaussianProcessRegressor(approximation=Inducing(n_inducing=15)).fit(X, y)
    >>> model.evidence_kind_, bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 0.05)
    ('lower bound', True)
    """

    name: ClassVar[str] = "inducing"
    takes_blocks: ClassVar[bool] = True
    n_inducing: int | str = "auto"
    inputs: Any = "conditional-variance"
    moves: int = 0
    learning_rows: int | None = 10_000

    def __post_init__(self) -> None:
        if self.learning_rows is not None:
            check_whole("learning_rows", self.learning_rows, 1)
        if not is_name(self.n_inducing, "auto"):
            check_whole("n_inducing", self.n_inducing, 1)
        check_whole("moves", self.moves)
        if isinstance(self.inputs, str) and self.inputs not in get_args(Placement):
            known = ", ".join(map(repr, get_args(Placement)))
            raise ValueError(f"inputs must be one of {known} or an array of inducing inputs, got {self.inputs!r}")

    def refusal(self, setting: Setting, n_rows: int, n_columns: int) -> str:
        """Every kernel and likelihood is taken; given inputs have the columns of X."""
        given = None if isinstance(self.inputs, str) else np.shape(self.inputs)
        if given is not None and (len(given) != 2 or given[1] != n_columns):
            return f"inputs must be an array of shape (M, {n_columns}), got shape {given}"
        return ""

    def longest_product(self, n_rows: int) -> float:
        """That of a factorisation, M³/3, where points are many; sums over rows have threads of their own."""
        points = 0 if self.n_inducing == "auto" else int(self.n_inducing)
        return points**3 / 3.0 if points >= MANY_POINTS else 0.0

    def prepare(
        self,
        setting: Setting,
        X: Any,
        y: Any,
        engine: Engine,
        rng: np.random.Generator,
        verbose: bool = False,
        one: Any = None,
    ) -> InducingFitter:
        """A sample of the rows and few points, or all of them where inducing inputs are given."""
        if not isinstance(engine, GaussianKL | Exact):
            raise ValueError(f"inducing points need engine 'gkl' or 'exact', got {engine.name!r}")
        rows = X if y is None else local_blocks(X, y)
        seed = int(rng.integers(2**31))
        sample = np.ascontiguousarray(sample_rows(rows, SAMPLE, seed).whole.X, dtype=float)
        Z = sample[:1] if isinstance(self.inputs, str) else np.ascontiguousarray(self.inputs, dtype=float)
        return InducingFitter(self, rows, rows, sample, Z, engine, seed, one).at_step(0, setting)


@dataclass(frozen=True)
class InducingFitter:
    """Rows and inducing inputs for fits at many parameters.

    Parameters
    ----------
    options : Inducing
    rows : Blocks
        All training rows.
    used : Blocks
        Those of the fits: all of them, or a sample at first.
    candidates : ndarray of shape (n, n_features)
        Rows among which inducing inputs are chosen.
    Z : ndarray of shape (M, n_features)
    engine : Engine
    seed : int
    one : label, optional
        The class that counts as one, where targets are labels.
    step : int
        Which of the samples is used.
    before : tuple of int and float, optional
        Number of points before they were doubled, and the bound there.
    moved : bool
        Inducing inputs were moved.
    settled : bool
        Parameters are learnt, and `used` are all rows.
    """

    #: relative change of the bound at which a search ends
    accuracy: ClassVar[float] = 3e-5
    options: Inducing
    rows: Blocks
    used: Blocks
    candidates: Array
    Z: Array
    engine: Engine
    seed: int
    one: Any = None
    step: int = 0
    before: tuple[int, float] | None = None
    moved: bool = False
    settled: bool = False

    @property
    def X(self) -> Array:
        """The training inputs; where these are in blocks, the inducing ones."""
        held = _held(self.rows)
        return held[0] if held else self.Z

    @property
    def n_rows(self) -> int:
        """Rows of the fits."""
        return count_rows(self.used)

    @property
    def most(self) -> int:
        """Points at most."""
        return MOST if self.options.n_inducing == "auto" else int(self.options.n_inducing)

    def placed(self, setting: Setting, count: int) -> Array:
        """Inducing inputs that suit some parameters."""
        return place_inputs(self.options.inputs, setting, self.candidates, count, np.random.default_rng(self.seed))

    @cached_property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Rows and points of the samples on which parameters are learnt, the last at the latest."""
        total, wanted = count_rows(self.rows), self.options.learning_rows
        rows = total if wanted is None or 2 * wanted > total else wanted
        if not isinstance(self.options.inputs, str):
            return ((rows, len(self.Z)),)
        first = tuple(step for step in LADDER if 2 * step[0] <= rows) or ((rows, LADDER[0][1]),)
        return (*first, (rows, FIRST if self.options.n_inducing == "auto" else self._learning_points(rows)))

    def _learning_points(self, rows: int) -> int:
        """All points where rows are few."""
        return self.most if rows < MANY else min(self.most, LEARNING_POINTS)

    def at_step(self, step: int, setting: Setting) -> InducingFitter:
        """The sample of a step, with inducing inputs that suit some parameters."""
        points = min(self.steps[step][1], self.most)
        Z = self.placed(setting, points) if isinstance(self.options.inputs, str) else self.Z
        return replace(self, used=self._sample(step, self.seed), Z=Z, step=step)

    def _sample(self, step: int, seed: int) -> Blocks:
        rows = self.steps[step][0]
        return self.rows if rows == count_rows(self.rows) else sample_rows(self.rows, rows, seed)

    def fit(self, setting: Setting, start: InducingFunction | None = None, verbose: bool = False) -> InducingFunction:
        """The optimum at fixed parameters; a rough one on a sample, unless the engine has a tolerance of its own."""
        tol = LOOSE if self.used is not self.rows else SETTLED if self.settled else 0.0
        own = isinstance(self.engine, GaussianKL) and self.engine.tol != GaussianKL.tol
        if tol == LOOSE and not own and start is not None and self._has_fitted(start, setting):
            return start
        return self._fit(setting, start, 0.0 if own else tol, verbose)

    def _has_fitted(self, latent: InducingFunction, setting: Setting) -> bool:
        """Whether a latent function is that of these rows and points at these parameters."""
        same = latent.blocks is self.used and latent.has_points(self.Z)
        return same and np.array_equal(latent.setting.theta, setting.theta)

    def _fit(
        self, setting: Setting, start: InducingFunction | None, tol: float, verbose: bool = False
    ) -> InducingFunction:
        engine = self.engine
        if isinstance(engine, GaussianKL):
            engine = replace(engine, tol=max(tol, engine.tol))
        cheap = self.used is self.rows and self.n_rows * len(self.Z) ** 2 < DEAR
        gap = GAP if tol > 0.0 and not (cheap and self.settled) else 0.0
        if gap and self.settled and self.used is not self.rows:
            gap = ROUGH
        last = self.settled and self.used is self.rows
        return fit_inducing(Basis.of(setting, self.Z), self.used, engine, self.one, start, verbose, gap, last)

    def fit_with_gradient(
        self, setting: Setting, start: InducingFunction | None = None
    ) -> tuple[InducingFunction, Array]:
        """The optimum at fixed parameters, and ∂ bound/∂theta."""
        latent = self._fit(setting, start, LOOSE)
        found = gradient_of(latent)
        return replace(latent, stand_ins=found.stand_ins), found.theta

    def slopes(self, latent: InducingFunction) -> BoundGradient:
        """∂ bound at an optimum, in theta and in the inducing inputs."""
        return gradient_of(latent)

    def gradient(self, latent: InducingFunction) -> Array:
        """∂ bound/∂theta at an optimum."""
        return self.slopes(latent).theta

    def kept(self) -> dict[str, Any]:
        """What a checkpoint needs besides parameters."""
        return {name: getattr(self, name) for name in ("Z", "seed", "step", "before", "moved")}

    def resumed(self, kept: Mapping[str, Any]) -> InducingFitter:
        """The fitter of a checkpoint, on the same rows."""
        return replace(self, used=self._sample(kept["step"], kept["seed"]), **kept)

    def refined(self, latent: InducingFunction) -> InducingFitter | None:
        """The next sample; on the last one more points, while they gain enough, then moved ones; then all rows."""
        auto, setting = self.options.n_inducing == "auto", latent.setting
        if self.settled:
            return None if self.used is self.rows else replace(self, used=self.rows)
        if self.step + 1 < len(self.steps):
            larger = self.at_step(self.step + 1, setting)
            few = auto or self.steps[larger.step][0] < MANY
            return larger if few else larger._with_enough(latent, IMPRECISE)
        if auto and isinstance(self.options.inputs, str) and not self._has_enough(latent):
            now = (len(self.Z), latent.posterior.log_evidence)
            more = self.placed(setting, min(2 * len(self.Z), self.most))
            if len(more) > len(self.Z):
                return replace(self, Z=more, before=now)
        if self.options.moves and not self.moved:
            return replace(self, Z=self._moved(latent), moved=True)
        if self.used is self.rows and len(self.Z) >= self._wanted:
            return None
        if len(self.Z) >= self._wanted:
            return replace(self, used=self.rows, settled=True)
        # all points on the sample first: what they say of it tells where to begin with all rows
        whole = replace(self, used=self.rows, Z=self.placed(setting, self.most), settled=True)
        return replace(whole._with_enough(latent, UNEXPLAINED), used=self.used)

    def _with_enough(self, latent: InducingFunction, nats: float) -> InducingFitter:
        """With the first of the inducing inputs, as many as explain the rows but for some nats."""
        curvature = self._curvature(latent)
        if curvature is None:
            return self
        rng = np.random.default_rng(self.seed)
        some = self.candidates[rng.permutation(len(self.candidates))[:TRIED]]
        gains = 0.5 * curvature * self.n_rows * variance_left(Basis.of(latent.setting, self.Z), some)
        enough = gains <= nats
        return replace(self, Z=self.Z[: int(np.argmax(enough)) + 1]) if enough.any() else self

    def _curvature(self, latent: Any) -> float | None:
        """The mean γ of a row, where it is known."""
        sites = latent.posterior.sites
        return None if sites is None else float(np.abs(sites.gamma).mean())

    @property
    def _wanted(self) -> int:
        """Points of the posterior, where these are more than those with which parameters are learnt."""
        all_explained = self.steps[-1][0] < MANY and len(self.Z) < self.steps[-1][1]
        chosen = isinstance(self.options.n_inducing, str) or not isinstance(self.options.inputs, str)
        return len(self.Z) if chosen or all_explained else self.most

    def _has_enough(self, latent: InducingFunction) -> bool:
        if self.before is None:
            return False
        count, bound = self.before
        return latent.posterior.log_evidence - bound < ENOUGH * (len(self.Z) - count)

    def _moved(self, latent: InducingFunction) -> Array:
        """Inducing inputs moved along the bound's gradient, in spreads of the inputs."""
        scale = np.maximum(self.candidates.std(axis=0), 1e-300)
        best = [latent]

        def loss(point: Array) -> tuple[float, Array]:
            Z = np.ascontiguousarray(point.reshape(self.Z.shape) * scale)
            here = replace(self, Z=Z).fit(latent.setting, best[0])
            if here.posterior.log_evidence > best[0].posterior.log_evidence:
                best[0] = here
            return -here.posterior.log_evidence, -(self.slopes(here).inputs * scale).ravel()

        minimize(loss, (self.Z / scale).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": self.options.moves})
        return best[0].basis.Z

    @property
    def note(self) -> str:
        """How many points and rows there are, and why, for the message."""
        if not self.settled:
            return self._points
        rows, points = self.steps[-1]
        fewer = f"with at most {points} points " if points < self.most else ""
        return f"{self._points}; parameters learnt {fewer}from {rows} of {count_rows(self.rows)} rows"

    @property
    def _points(self) -> str:
        count = f"{len(self.Z)} inducing points"
        if not isinstance(self.options.inputs, str):
            return count
        if self.options.n_inducing != "auto":
            return f"{count} explain all rows" if len(self.Z) < self.most else count
        if self.before is None or len(self.Z) == self.most:
            return f"{count}, the most that 'auto' takes" if len(self.Z) == self.most else f"{count} explain all rows"
        return f"{count}: the last {len(self.Z) - self.before[0]} gained less than {ENOUGH} each"


def _held(blocks: Blocks) -> tuple[Array, Array] | None:
    """X and y of rows that are in memory."""
    if not isinstance(blocks, LocalBlocks) or type(blocks.whole.X) is not np.ndarray:
        return None
    return blocks.whole.X, blocks.whole.y


def take_fitter_apart(fitter: InducingFitter) -> dict[str, Any]:
    held = _held(fitter.rows)
    X, y = held if held else (None, None)
    kept = {name: getattr(fitter, name) for name in ("options", "engine", "one")} | fitter.kept()
    return kept | {"X": X, "y": y, "width": int(fitter.Z.shape[1])}


def _stored_rows(X: Array | None, y: Any, width: int) -> Any:
    return AbsentBlocks(width) if X is None else local_blocks(X, y)


def stored_fitter(X: Array | None, y: Any, width: int, Z: Array, **kept: Any) -> dict[str, Any]:
    """Arguments of a fitter that was stored."""
    rows = _stored_rows(X, y, width)
    return {"rows": rows, "used": rows, "candidates": Z, "Z": Z, "settled": True, **kept}


def _put_fitter_together(**kept: Any) -> InducingFitter:
    return InducingFitter(**stored_fitter(**kept))


def _take_function_apart(latent: InducingFunction) -> dict[str, Any]:
    held = _held(latent.blocks)
    X, y = held if held else (None, None)
    return {"basis": latent.basis, "posterior": latent.posterior, "one": latent.one, "X": X, "y": y}


def _put_function_together(basis: Basis, posterior: Posterior, one: Any, X: Array | None, y: Any) -> InducingFunction:
    rows = _stored_rows(X, y, basis.Z.shape[1])
    return InducingFunction(basis, replace(posterior, model=model_of(basis, rows, one)), rows, one)


storable_as(InducingFitter, take_fitter_apart, _put_fitter_together)
storable_as(InducingFunction, _take_function_apart, _put_function_together)
