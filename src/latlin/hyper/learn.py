"""Learn hyperparameters: at the optimum of log evidence + log prior, or integrated over their posterior.

Both are functions of a space of named numbers and of `evaluate`, which fits at given values; nothing here knows what is
fitted. The optimum of the density of the numbers themselves is reported when maximising; when integrating, the density
is that of the coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from latlin.densities.density import Mixture
from latlin.hyper import rules
from latlin.hyper.axes import Axes, axes_at
from latlin.hyper.marginals import (
    HyperparameterTable,
    Marginal,
    find_cut_off,
    marginals_from,
    marginals_of,
    normal_marginal,
    row_of,
    spread_of,
)
from latlin.hyper.optimum import (
    Optimum,
    bound_message,
    find_hessian,
    find_optimum,
    find_unbounded,
    nearest_point,
    polish,
)
from latlin.hyper.space import Evaluate, Objective, Point, Space
from latlin.inference.diagnosis.log_joint import AveragedModel
from latlin.inference.posterior import EvidenceKind, Posterior
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_callable, check_choice, check_number
from latlin.numerics.progress import progress

#: most hyperparameters of a lattice, of a composite design, and of importance sampling
LATTICE, COMPOSITE, SAMPLED = 3, 8, 60
#: names of the ways to integrate
METHODS = ("auto", "quick", "lattice", "composite", "importance")
#: error in nat of a quick integral by a design up to which no lattice is tried
SURE = 0.1
#: error in nat from which on an integral is rough, and importance sampling is tried in place of a design
UNSURE = 0.5
#: points with a smaller share of the largest weight, and of the variance of every number, are left out of a mixture
SHARE, OF_VARIANCE = 1e-4, 1e-3
#: share of the last gradient to which rough fits are followed, the least such gradient, and their least relative gain
NEARLY, NEAREST, ROUGH_GAIN = 0.3, 1e-3, 1e-7
INSTEAD = "give it a prior that keeps away from there, other bounds, or a fixed value"


class Component(NamedTuple):
    """One point of an integral: its share, the hyperparameters, and what was fitted there."""

    share: float
    log_weight: float
    values: dict[str, float]
    fit: Any


@dataclass(frozen=True)
class Learnt:
    """Hyperparameters and what was fitted at them.

    Attributes
    ----------
    values : dict
        The penalised optimum, or posterior means when integrated.
    components : tuple of Component
        One when maximised. The shares add up to one; `log_weight` is log(quadrature weight × prior density), so that
        the evidence is the sum of exp(log_weight) times the parts' evidences.
    table : HyperparameterTable
    log_evidence : float
        At the optimum, or log ∫ exp(log evidence) p(θ) dθ.
    error : float
        Of the quadrature, in nat.
    hessian : ndarray of shape (m, m) or None
        Of log evidence + log prior in the coordinates, at the optimum.
    optimum : Optimum
    message : str
    caution : (str, str) or None
        A verdict that no diagnosis may improve on, and why.
    space : Space or None
        The hyperparameters, where there are some.
    n_fits : int
        All that were made.
    sides : tuple of (fit, fit, float)
        When maximised: what was fitted at two points near the optimum and how far they are apart, in coordinates; one
        for each hyperparameter, in order.
    """

    values: dict[str, float]
    components: tuple[Component, ...]
    table: HyperparameterTable
    log_evidence: float
    error: float
    hessian: Array | None
    optimum: Optimum
    message: str
    caution: tuple[str, str] | None
    space: Space | None = None
    n_fits: int = 0
    sides: tuple[tuple[Any, Any, float], ...] = ()

    @property
    def fit(self) -> Any:
        """What was fitted at the point of the largest share."""
        return max(self.components, key=lambda component: component.share).fit


def maximise(
    space: Space,
    evaluate: Evaluate,
    *,
    gradient: float = 1e-3,
    gain: float = 1e-10,
    worth: float = 0.0,
    curvature: bool = True,
    rough: Evaluate | None = None,
    verbose: bool = False,
) -> Learnt:
    """The optimum of log evidence + log prior of the numbers themselves.

    Parameters
    ----------
    space : Space
    evaluate : callable
        See `latlin.hyper.space.Evaluate`.
    gradient, gain, worth : float
        How far the search goes; see `find_optimum`.
    curvature : bool
        Also find the Hessian there, by up to two more fits per hyperparameter, and with it standard deviations.
    rough : callable, optional
        As `evaluate`, by fits that end early: the search goes with these until it is near.
    verbose : bool
        Show a bar, one step per fit.
    """
    _check_search(space, evaluate, rough, gradient=gradient, gain=gain, worth=worth)
    with progress("optimum of hyperparameters", None, verbose) as bar:
        objective = Objective(space, evaluate, volume=False, bar=bar)
        optimum = _optimum(objective, rough, gradient, gain, worth)
        hessian: Array | None = None
        sides: list[tuple[Point, Point]] = []
        if curvature:
            hessian, sides = find_hessian(objective, optimum)
            optimum = find_unbounded(objective, optimum, hessian)
            optimum = polish(objective, optimum, hessian)
            sides = sides or nearest_point(objective, optimum)
    _warn_about(optimum, space)
    values = space.values(optimum.u)
    marginals = {} if hessian is None else _normal_marginals(space, optimum, hessian)
    rows = [
        row_of(m.name, values[m.name], marginals.get(m.name), int(side), repr(m.prior))
        for m, side in zip(space.members, optimum.at_bound, strict=True)
    ]
    said = f"{objective.n_fits} fits"
    at_end = bound_message(space, optimum.at_bound, values, f"integrate over it, {INSTEAD}")
    caution = ("wrong", at_end) if at_end else None
    log_prior = optimum.point.log_density - optimum.point.log_evidence
    part = Component(1.0, log_prior, values, optimum.point.fit)
    return Learnt(
        space=space,
        values=values,
        components=(part,),
        table=HyperparameterTable(rows, "maximised", marginals, said),
        log_evidence=optimum.point.log_evidence,
        error=0.0,
        hessian=hessian,
        optimum=optimum,
        n_fits=objective.n_fits,
        sides=tuple(
            (ahead.fit, behind.fit, float(ahead.u[j] - behind.u[j])) for j, (ahead, behind) in enumerate(sides)
        ),
        message="; ".join(filter(None, (f"hyperparameters maximised by {said}", at_end))),
        caution=caution,
    )


def integrate(
    space: Space,
    evaluate: Evaluate,
    *,
    method: str = "auto",
    gradient: float = 1e-3,
    gain: float = 1e-10,
    worth: float = 0.0,
    rough: Evaluate | None = None,
    random_state: int = 0,
    verbose: bool = False,
) -> Learnt:
    """Average over the posterior of the hyperparameters.

    Parameters
    ----------
    space : Space
    evaluate : callable
        See `latlin.hyper.space.Evaluate`.
    method : {"auto", "quick", "lattice", "composite", "importance"}
        "auto" is a lattice for up to 3 hyperparameters, a central composite design for up to 8, and importance
        sampling beyond, and where a design has an error of half a nat. "quick" is the design for 2 and 3 too, and the
        lattice where the design is unsure.
    gradient, gain, worth : float
        How far the search for the centre goes; see `find_optimum`.
    rough : callable, optional
        See `maximise`.
    random_state : int
        Seed of the quasi-random points of importance sampling.
    verbose : bool
        Show a bar, one step per fit.
    """
    _check_search(space, evaluate, rough, gradient=gradient, gain=gain, worth=worth)
    check_choice("method", method, METHODS)
    quick = method == "quick" and 1 < len(space) <= LATTICE
    chosen = _method("composite" if quick else "auto" if method == "quick" else method, len(space))
    with progress("integral over hyperparameters", None, verbose) as bar:
        objective = Objective(space, evaluate, volume=True, bar=bar)
        optimum = _optimum(objective, rough, gradient, gain, worth)
        axes = axes_at(objective, optimum, sloped=chosen == "composite")
        objective.points, objective.keep = [optimum.point, *(point for point, _ in axes.tried)], True
        if chosen == "lattice":
            rule = rules.lattice_rule(objective, axes, optimum.point)
        elif chosen == "composite":
            rule = rules.composite_rule(objective, axes, optimum)
        else:
            rule = rules.importance_rule(objective, axes, random_state)
        if quick and rule.error >= SURE:
            objective.points = [optimum.point]
            rule = rules.lattice_rule(objective, axes, optimum.point)
        elif chosen == "composite" and method != chosen and rule.error >= UNSURE:
            drawn = rules.importance_rule(objective, axes, random_state)
            rule = min(rule, drawn, key=lambda one: one.error)
    _warn_about(optimum, space)
    return _averaged(space, optimum, axes, rule, objective.n_fits)


def _check_search(space: object, evaluate: object, rough: object, **sizes: float) -> None:
    if not isinstance(space, Space):
        raise ValueError(f"space must be a Space, got {space!r:.80}")
    check_callable("evaluate", evaluate)
    if rough is not None:
        check_callable("rough", rough)
    for name, size in sizes.items():
        check_number(name, size, least=0.0)


def _optimum(objective: Objective, rough: Evaluate | None, gradient: float, gain: float, worth: float) -> Optimum:
    """The optimum, sought by rough fits first, where there are such."""
    if rough is None:
        return find_optimum(objective, gradient=gradient, gain=gain, worth=worth)
    early = Objective(objective.space, rough, volume=objective.volume, bar=objective.bar)
    near = find_optimum(early, gradient=max(NEARLY * gradient, NEAREST), gain=max(gain, ROUGH_GAIN))
    objective.n_fits = early.n_fits
    # its fit is where the next one starts; its density is no match for those of fits to the end
    objective.points = [near.point._replace(log_density=-np.inf)]
    return find_optimum(objective, near.u, gradient=gradient, gain=gain, worth=worth, pairs=near.pairs)


def _method(method: str, count: int) -> str:
    limits = {"lattice": LATTICE, "composite": COMPOSITE, "importance": SAMPLED}
    if method == "auto":
        method = "lattice" if count <= LATTICE else "composite" if count <= COMPOSITE else "importance"
    if count > limits[method]:
        raise ValueError(
            f"{count} hyperparameters are too many to integrate over by {method!r}, which takes up to "
            f"{limits[method]}: maximise them, or let some share a value"
        )
    if method == "composite" and count == 1:
        raise ValueError("method 'composite' is for two or more hyperparameters, got 1: use 'lattice'")
    return method


def _averaged(space: Space, optimum: Optimum, axes: Axes, rule: rules.Rule, n_fits: int) -> Learnt:
    density = np.array([point.log_density for point in rule.points])
    logs = rule.log_weights + density
    total = float(logsumexp(logs))
    share = np.exp(logs - total)
    known = np.isfinite(density)
    u = np.stack([point.u for point in rule.points])
    shares = share[known] / share[known].sum()
    marginals = (
        marginals_of(space, axes, u[known], density[known], shares, rule.step)
        if rule.draws is None
        else marginals_from(space, *rule.draws)
    )
    components = _components(space, rule, share)
    sides, at_end = find_cut_off(space, marginals, INSTEAD)
    values = {name: marginal.mean for name, marginal in marginals.items()}
    rows = [
        row_of(m.name, values[m.name], marginals[m.name], int(side), repr(m.prior))
        for m, side in zip(space.members, sides, strict=True)
    ]
    said = f"{rule.message}, {n_fits} fits"
    unsure = None if rule.error < UNSURE else f"the integral over hyperparameters has an error of {rule.error:.2g} nat"
    if rule.stopped:
        unsure = f"hyperparameters are integrated by {rule.message}: some of them are hardly known"
    caution = ("wrong", at_end) if at_end else None if unsure is None else ("rough", unsure)
    return Learnt(
        space=space,
        values=values,
        components=components,
        table=HyperparameterTable(rows, "integrated", marginals, said),
        log_evidence=total,
        error=rule.error,
        hessian=None,
        optimum=optimum,
        n_fits=n_fits,
        sides=(),
        message="; ".join(filter(None, (f"hyperparameters integrated by {said}, error {rule.error:.1g} nat", at_end))),
        caution=caution,
    )


def _components(space: Space, rule: rules.Rule, share: Array) -> tuple[Component, ...]:
    x = space.natural(np.stack([point.u for point in rule.points]))
    spread = share[:, None] * (x - share @ x) ** 2
    large = (share >= SHARE * share.max()) | np.any(spread > OF_VARIANCE * spread.sum(axis=0), axis=1)
    kept = np.flatnonzero(large).tolist()
    lost = np.log(share[kept].sum())

    def component(k: int) -> Component:
        point: Point = rule.points[k]
        # the prior density of the coordinates times the weight of the rule, raised for what is left out
        weight = float(rule.log_weights[k] + point.log_density - point.log_evidence - lost)
        return Component(float(np.exp(np.log(share[k]) - lost)), weight, space.values(point.u), point.fit)

    return tuple(component(k) for k in kept)


def _normal_marginals(space: Space, optimum: Optimum, hessian: Array) -> dict[str, Marginal]:
    """Normals in the coordinates that are not at an end."""
    inside = np.flatnonzero(optimum.inside)
    if not len(inside):
        return {}
    sd = np.sqrt(np.diagonal(spread_of(hessian[np.ix_(inside, inside)])))
    members = [space.members[int(j)] for j in inside]
    return {
        m.name: normal_marginal(m, float(optimum.u[j]), float(s)) for m, j, s in zip(members, inside, sd, strict=True)
    }


def _warn_about(optimum: Optimum, space: Space) -> None:
    if not optimum.converged:
        largest = int(np.argmax(np.abs(optimum.gradient)))
        alert(
            f"the search for hyperparameters stopped after {optimum.n_fits} fits with a gradient of "
            f"{optimum.gradient[largest]:.2g} in {space.names[largest]}; give some of them a value or a narrower prior",
            ConvergenceWarning,
        )


# --- One posterior from the fits at several hyperparameters.


#: a posterior that would be wider by this factor is too narrow
NARROW = 1.1


def averaged_posterior(learnt: Learnt, *, normalised: bool | None = None) -> Posterior:
    """The posterior of w with the hyperparameters maximised (the one fit) or integrated (a mixture of the fits).

    Parameters
    ----------
    learnt : Learnt
        Whose components were fitted by an engine: each `fit` is a `Posterior`.
    normalised : bool, optional
        Whether everything integrated over has a density for its prior; what the space says unless given. Otherwise an
        integral has no absolute value, and its evidence is of the kind "none".
    """
    if not isinstance(learnt, Learnt):
        raise ValueError(f"learnt must be what maximise or integrate returned, got {learnt!r:.80}")
    parts: list[Posterior] = [component.fit for component in learnt.components]
    middle = int(np.argmax([component.share for component in learnt.components]))
    centre = parts[middle]
    if learnt.table.manner != "integrated":
        message = "; ".join(filter(None, (centre.message, learnt.message)))
        return replace(centre, message=message, caution=learnt.caution or _too_narrow(learnt, centre))
    proper = (learnt.space is None or learnt.space.normalised) if normalised is None else normalised
    shares = np.array([component.share for component in learnt.components])
    model = AveragedModel([p.model for p in parts], [c.log_weight for c in learnt.components], middle)
    return Posterior(
        model=model,
        density=Mixture(shares, tuple(part.density for part in parts)),
        log_evidence=learnt.log_evidence,
        evidence_kind=_kind(parts) if proper else "none",
        engine=centre.engine,
        converged=all(part.converged for part in parts),
        n_iter=sum(part.n_iter for part in parts),
        trace=centre.trace,
        elapsed=sum(part.elapsed for part in parts),
        message="; ".join(filter(None, (centre.message and f"at their best values {centre.message}", learnt.message))),
        bound_error=learnt.error + max(part.bound_error for part in parts),
        caution=learnt.caution,
    )


def _too_narrow(learnt: Learnt, centre: Posterior) -> tuple[str, str] | None:
    """A word where the uncertainty of maximised hyperparameters would widen the posterior by more than a tenth.

    With the covariance C of the coordinates u, to first order the mean of w moves by J = ∂m/∂u and the logarithm of a
    variance by g, and the posterior of u is centred Cb from the optimum of the numbers, b = ∂ log|dx/du|/∂u: the
    variance v of a coordinate of w becomes v exp(gᵀCb + ½gᵀCg) + JCJᵀ.
    """
    inside = [j for j, pair in enumerate(learnt.sides) if learnt.optimum.inside[j] and None not in pair[:2]]
    if learnt.space is None or learnt.hessian is None or not inside or not np.all(centre.variance > 0.0):
        return None
    spread = spread_of(learnt.hessian[np.ix_(inside, inside)])
    pairs = [learnt.sides[j] for j in inside]
    J = np.stack([(ahead.mean - behind.mean) / apart for ahead, behind, apart in pairs], axis=1)
    g = np.stack([np.log(ahead.variance / behind.variance) / apart for ahead, behind, apart in pairs], axis=1)
    bend = np.array([learnt.space.members[j].bend(float(learnt.optimum.u[j])) for j in inside])
    wider = np.exp(g @ spread @ bend + 0.5 * np.einsum("dj,jk,dk->d", g, spread, g))
    wider += np.einsum("dj,jk,dk->d", J, spread, J) / centre.variance
    worst = int(np.argmax(wider))
    if wider[worst] < NARROW**2:
        return None
    more = 100.0 * (np.sqrt(wider[worst]) - 1.0)
    name = f"coordinate {worst}" if centre.names is None else repr(centre.names[worst])
    return (
        "rough",
        f"hyperparameters are maximised, and their own uncertainty would make the sd of {name} about "
        f"{more:.0f} % larger: integrate over them",
    )


def _kind(parts: list[Posterior]) -> EvidenceKind:
    """A lower bound stays one, up to the error of the quadrature; nothing else is exact after it."""
    kinds = {part.evidence_kind for part in parts}
    if "none" in kinds:
        return "none"
    return "lower bound" if kinds <= {"lower bound", "exact"} and "lower bound" in kinds else "approximation"
