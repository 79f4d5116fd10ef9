"""What a fit shows of its model: how observations vary, where the search for hyperparameters ended, and whether
a single feature separates the classes or copies the target.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.diagnostics.data_checks import (
    check_copied_labels,
    check_copied_numbers,
    check_joint_separation,
    check_separation,
    separating_direction,
)
from latlin.diagnostics.model_checks import OF_FEATURES, OF_LOGARITHM, Check, ModelChecks
from latlin.diagnostics.residual_checks import (
    FEWEST_ROWS,
    CurveSums,
    check_curves,
    check_neighbours,
    check_noise,
    curve_sums,
    standardised,
)
from latlin.distributed.blocks import Block
from latlin.inference.blocks import BlockModel, Observed, Reading, read_pieces
from latlin.inference.diagnosis.diagnose import UNKNOWN
from latlin.inference.diagnosis.dispersion import Dispersion, pearson_sums
from latlin.inference.diagnosis.log_joint import AveragedModel
from latlin.inference.posterior import Posterior
from latlin.linear._learning import LearntFit, ranges_of
from latlin.linear._problem import Design, HeldRows, LinearProblem
from latlin.numerics.alerts import MisfitWarning, alert
from latlin.numerics.arrays import Array
from latlin.numerics.options import is_name


class Labels(NamedTuple):
    """The classes of the rows that were fitted: their places among all classes, and these."""

    place: NDArray[np.intp]
    classes: Array

    def named(self) -> str:
        """Two classes in words."""
        return f"the classes {self.classes[0]} and {self.classes[1]}"


@dataclass(frozen=True)
class LookBack:
    """What a fit can show of its model, kept until it is asked for; the rows are those of the posteriors.

    Parameters
    ----------
    problems, fits : one per response
    given : mapping
        Hyperparameters as the user gave them.
    names : sequence of str
        Of the features.
    family : list of Check
        What was found of the family at once.
    labels : Labels or None
        None where the response is a number.
    residuals : bool
        False where the models of the posteriors are stand-ins, of whose residuals there is nothing to say.
    of_logarithm : bool
        Whether the posteriors are of the logarithm of the response.
    """

    problems: list[LinearProblem]
    fits: list[LearntFit]
    given: Mapping[str, Any]
    names: Sequence[str]
    family: list[Check]
    labels: Labels | None = None
    residuals: bool = True
    of_logarithm: bool = False

    def find(self) -> ModelChecks:
        """All checks that can be made."""
        searches = checks_of_searches(self.problems, self.fits, self.given, self.names)
        features, design = self._checks_of_features(), self.problems[0].design
        told = not all(check.passed for check in features)
        # where classes are separated, or the target is copied, there is nothing left to look at
        fits = [] if told or not self.residuals else self.fits
        residuals = [checks_of_residuals(fit.posterior, design, self.names, self.of_logarithm) for fit in fits]
        # a feature that says too much comes first: it may be why a search ran to an end
        said = (features, searches) if told else (searches, features)
        return ModelChecks((*self.family, *said[0], *said[1], *worst(residuals)))

    def _checks_of_features(self) -> list[Check]:
        """Whether features say too much, of rows in memory."""
        problem = self.problems[0]
        if not isinstance(problem.observed, HeldRows):
            return []
        X = problem.observed.rows[:, : problem.design.n_features]
        if self.labels is None:
            return checks_of_numbers(X, problem.observed.targets.response, self.names)
        found = checks_of_labels(X, self.labels, self.names)
        if len(self.labels.classes) != 2 or not all(check.passed for check in found):
            return found
        is_one, named = self.labels.place == 1, self.labels.named()
        joint = check_combination(self.fits[0].posterior, is_one, problem.design, self.names, named)
        return found if joint is None else [joint, *(check for check in found if check.name != "separation")]


class Dispersed:
    """`fit` of a family whose variance follows from its mean ends with a look at how the observations vary."""

    _extras: tuple[str, ...] = ("dispersion_", "finding_")

    def _checks_of_family(self: Any) -> list[Check]:
        found, wider = dispersion(self._fits[0].posterior), self._family().wider
        self._more_zeros = found.zeros
        self.dispersion_, self.finding_ = found.ratio, found.words(wider)
        if self.finding_:
            alert(self.finding_, MisfitWarning)
        return [found.check(wider)] if wider else []

    def __sklearn_tags__(self: Any) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.positive_only = True
        return tags


def dispersion(posterior: Posterior) -> Dispersion:
    """Of the last sites of a posterior's model, at the posterior mean."""
    model = _model_of(posterior)
    if isinstance(model, BlockModel):
        sums = model.blocks.total(_block_sums, model.reading, posterior.mean)
    else:
        site = model.sites[-1]
        sums = _sums(Observed(site.H, site.potential, site.weight, site.offset), posterior.mean)
    return Dispersion.of(sums, len(posterior.mean))


def _model_of(posterior: Posterior) -> Any:
    """The model of a posterior, at the centre of its hyperparameters."""
    return posterior.model.centre if isinstance(posterior.model, AveragedModel) else posterior.model


def _block_sums(block: Block, reading: Reading, mean: Array) -> tuple[Any, ...]:
    total = np.zeros(6)
    for observed in read_pieces(block, reading):
        total += _sums(observed, mean)
    return tuple(total)


def _sums(observed: Observed, mean: Array) -> tuple[float, ...]:
    sites = observed.sites
    return pearson_sums(observed.potential, np.asarray(observed.times(mean)) + sites.offset, sites.weight)


# --- hyperparameters ------------------------------------------------------------------------------------------------

#: distance from an end of a search, in logarithms, that counts as being there
AT_END = 0.05
ENDS: Mapping[tuple[str, bool], tuple[str, str]] = {
    ("prior_scale", False): (
        "maximising the evidence set the prior scale of {which} to its lower end, which switches {them} off",
        "Their intervals are too narrow to mean anything: give prior_scale a number, or integrate over it",
    ),
    ("prior_scale", True): (
        "maximising the evidence set the prior scale of {which} to its upper end, so that nothing holds {them} back",
        "Give prior_scale a number, and look for a feature that separates the classes",
    ),
    ("scale", False): (
        "maximising the evidence set the noise scale to its lower end: the model passes through every row",
        "Look for a feature that copies the target, or use fewer features",
    ),
}


#: what to do where a search ended at an end, or where maximising makes intervals too narrow
MAXIMISED = (
    "Use hyperparameters='integrate' (--hyperparameters integrate), or give the prior scale a number (prior_scale, "
    "--prior-scale)"
)
INTEGRATED = "Give the prior scale a number (prior_scale, --prior-scale), and look for a feature that copies the target"
#: a scale of one feature in a message
ONE_OF = re.compile(r"\b(prior_scale|scale)\[(\d+)\]")


def with_feature_names(posterior: Posterior, names: tuple[str, ...] | None) -> Posterior:
    """A posterior that names its coordinates, and scales of single features in what was found by the search."""
    if names is not None and posterior.caution is not None:
        word, said = posterior.caution
        posterior = replace(posterior, caution=(word, by_feature(said, names)))
    return posterior.with_names(names)


def by_feature(words: str, names: Sequence[str]) -> str:
    """Scales of single features by the name of the feature, not by its place.

    Examples
    --------
    >>> by_feature("prior_scale[1] runs to the lower end", ["age", "dose"])
    "prior_scale of 'dose' runs to the lower end"
    """
    return ONE_OF.sub(lambda found: f"{found[1]} of {str(names[int(found[2])])!r}", words)


def checks_of_searches(
    problems: Sequence[LinearProblem], fits: Sequence[LearntFit], given: Mapping[str, Any], names: Sequence[str]
) -> list[Check]:
    """One check for all responses, the first that failed; none where every hyperparameter was given."""
    learnt = [name for name, value in given.items() if is_name(value, "auto")]
    each = [check_hyperparameters(*pair, learnt, names) for pair in zip(problems, fits, strict=True)]
    return ([check for check in each if not check.passed] or each)[:1] if learnt else []


def check_hyperparameters(problem: LinearProblem, fit: LearntFit, learnt: Sequence[str], names: Sequence[str]) -> Check:
    """Whether a search for hyperparameters ended inside its range; features are named where they have their own."""
    verdict, words = fit.posterior.caution or (UNKNOWN, "")
    if verdict != UNKNOWN:
        return Check(
            "hyperparameters",
            verdict != "wrong",  # what makes the approximation rough says nothing against the model
            by_feature(words, names),
            INTEGRATED if isinstance(fit.posterior.model, AveragedModel) else MAXIMISED,
        )
    spans = ranges_of(problem)
    for name in learnt:
        value = np.atleast_1d(np.asarray(fit.values[name], float))
        if name not in ("prior_scale", "scale"):
            continue
        free = np.atleast_1d(spans[name].to_free(value))
        low, high = np.array(spans[name].bounds(len(free))).T
        for is_upper, reached in ((False, free <= low + AT_END), (True, free >= high - AT_END)):
            if np.any(reached) and (name, is_upper) in ENDS:
                sentence, remedy = ENDS[name, is_upper]
                return Check("hyperparameters", False, sentence.format(**_which(reached, names)), remedy)
    return Check("hyperparameters", True, "no hyperparameter ended at an end of its search")


def _which(reached: Array, names: Sequence[str]) -> dict[str, str]:
    if len(reached) == 1:
        return {"which": "all features", "them": "them"}
    found = np.flatnonzero(reached)
    shown = ", ".join(repr(str(names[j])) for j in found[:5]) + (
        f" and {len(found) - 5} more" if len(found) > 5 else ""
    )
    return {"which": shown, "them": "it" if len(found) == 1 else "them"}


# --- features -------------------------------------------------------------------------------------------------------

#: entries of X up to which single features are looked at
MOST_ENTRIES = 5 * 10**6


def checks_of_labels(X: Any, labels: Labels, names: Sequence[str]) -> list[Check]:
    """Whether one feature separates two classes, or stands for the classes."""
    if X.shape[0] * X.shape[1] > MOST_ENTRIES:
        return []
    copied = check_copied_labels(X, labels.place, names)
    if len(labels.classes) != 2:
        return [copied]
    return [check_separation(X, labels.place == 1, names, labels.named()), copied]


def checks_of_numbers(X: Any, y: Array, names: Sequence[str]) -> list[Check]:
    """Whether one feature copies the target."""
    if X.shape[0] * X.shape[1] > MOST_ENTRIES:
        return []
    return [check_copied_numbers(X, y, names)]


# --- residuals ------------------------------------------------------------------------------------------------------

#: features, and entries of X, up to which curves are looked for; rows per unknown that this needs
MOST_FEATURES, MOST_CELLS, ROWS_PER_UNKNOWN = 100, 10**6, 4


def checks_of_residuals(
    posterior: Posterior, design: Design, names: Sequence[str], of_logarithm: bool = False
) -> list[Check]:
    """Patterns that the linear predictor leaves, and what the residuals of Gaussian noise look like.

    Rows in blocks are passed over once more, but for Gaussian noise, whose fit is one pass.
    """
    if design.n_features > MOST_FEATURES:
        return []
    model = _model_of(posterior)
    if isinstance(model, BlockModel):
        if model.reading.kind().gaussian:
            return []
        sums = CurveSums(*model.blocks.total(_block_curves, model.reading, posterior.mean, design.spread))
        return [check_curves(sums.scores, names)] if sums.rows >= ROWS_PER_UNKNOWN * design.dim else []
    site = model.sites[-1]
    observed = Observed(site.H, site.potential, site.weight, site.offset)
    rows = len(observed.sites.weight)
    if rows < max(FEWEST_ROWS, ROWS_PER_UNKNOWN * design.dim) or rows * design.dim > MOST_CELLS:
        return []
    if not isinstance(site.H, np.ndarray):
        return []
    curves, noise = _checks_of_rows(observed, posterior, design, names)
    return [curves] if noise is None else [curves, check_noise(*noise, OF_LOGARITHM if of_logarithm else OF_FEATURES)]


def worst(found: Sequence[Sequence[Check]]) -> list[Check]:
    """One check per name from those of several responses: the first that failed, or the first."""
    each: dict[str, Check] = {}
    for check in (check for checks in found for check in checks):
        if check.name not in each or (each[check.name].passed and not check.passed):
            each[check.name] = check
    return list(each.values())


def _checks_of_rows(
    observed: Observed, posterior: Posterior, design: Design, names: Sequence[str]
) -> tuple[Check, tuple[Array, list[tuple[str, Array]]] | None]:
    """What is found along features; of Gaussian noise, standardised residuals and predictions."""
    x, slope, curvature = _slopes(observed, posterior.mean)
    H = np.asarray(observed.rows)
    scale = np.where((sd := H[:, : design.n_features].std(axis=0)) > 0.0, sd, 1.0)
    curves = check_curves(curve_sums(_with_ones(H, design), scale, slope, curvature).scores, names)
    if curves.passed and np.all(curvature > 0.0):
        found = check_neighbours(slope / np.sqrt(curvature), H[:, : design.n_features], names)
        curves = curves if found is None else found
    if not observed.potential.gaussian or np.ptp(observed.sites.weight) > 0.0:
        return curves, None
    residual = standardised(slope, curvature, np.asarray(posterior.project(H).variance))
    return curves, (residual, [("", x)])


def _slopes(observed: Observed, mean: Array) -> tuple[Array, Array, Array]:
    """Predictors, and slopes and curvatures of the log likelihoods in them; those without a sign have a common one."""
    sites = observed.sites
    x = np.asarray(observed.times(mean)) + sites.offset
    found = observed.potential.derivatives(x)
    slope, curvature = np.asarray(found.first), -np.asarray(found.second)
    if np.any(curvature <= 0.0):
        curvature = np.full_like(x, max(float(np.mean(slope**2)), 1e-300))
    return x, sites.weight * slope, sites.weight * curvature


def _with_ones(H: Array, design: Design) -> Array:
    return H if design.intercept else np.column_stack([H, np.ones(len(H))])


def _block_curves(block: Block, reading: Reading, mean: Array, scale: Array) -> tuple[Any, ...]:
    total: tuple[Any, ...] | None = None
    for observed in read_pieces(block, reading):
        H = observed.rows.toarray() if hasattr(observed.rows, "toarray") else np.asarray(observed.rows)
        _, slope, curvature = _slopes(observed, mean)
        ones = H if H.shape[1] > len(scale) else np.column_stack([H, np.ones(len(H))])
        part = tuple(curve_sums(ones, scale, slope, curvature))
        total = part if total is None else tuple(a + b for a, b in zip(total, part, strict=True))
    if total is not None:
        return total
    dim, count = max(len(mean), len(scale) + 1), len(scale)
    return tuple(curve_sums(np.zeros((0, dim)), np.ones(count), np.zeros(0), np.zeros(0)))


#: share of rows on the wrong side, and entries of X, up to which a plane that separates all rows is looked for
FEW_WRONG, MOST_SEARCHED = 0.02, 2 * 10**5


def check_combination(
    posterior: Posterior, is_one: Any, design: Design, names: Sequence[str], label: str
) -> Check | None:
    """A combination of features that separates two classes in the rows of memory, or None."""
    model = _model_of(posterior)
    if isinstance(model, BlockModel):
        return None
    site = model.sites[-1]
    observed = Observed(site.H, site.potential, site.weight, site.offset)
    x = np.asarray(observed.times(posterior.mean)) + observed.sites.offset
    if len(x) != len(is_one):
        return None
    weights, margin = posterior.mean, np.where(is_one, x, -x)
    wrong = np.count_nonzero(margin <= 0.0)
    is_searched = 0 < wrong <= FEW_WRONG * len(x) and len(x) * design.dim <= MOST_SEARCHED
    if is_searched and isinstance(site.H, np.ndarray) and site.offset is None:
        # the prior may keep the mean from a plane that leaves no row on the wrong side
        found = separating_direction(site.H, is_one)
        weights, margin = (weights, margin) if found is None else (found, np.abs(site.H @ found))
    return check_joint_separation(margin, weights[: design.n_features] * design.spread, names, label)
