"""Variance components and their shares, and quantiles of mixtures of normals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from latlin.additive.effects import Effects
from latlin.additive.family import Family, Observed
from latlin.additive.group import GroupPart
from latlin.additive.predict import Component, Latent
from latlin.additive.term import Part
from latlin.numerics.arrays import Array

COLUMNS = ("mean", "sd", "low", "high")


def components(
    fits: Sequence[Component], parts: tuple[Part, ...], family: Family, mean: float, coverage: float
) -> Effects:
    """Variances by name, then their shares of the total."""
    share = np.array([fit.share for fit in fits])
    table = [_variances(fit.values, parts, family, mean) for fit in fits]
    names = list(table[0])
    found = np.array([[row[name] for name in names] for row in table])
    whole = found / found.sum(axis=1, keepdims=True)
    rows = [_weighted(f"var({n})", found[:, k], share, coverage) for k, n in enumerate(names)]
    rows += [_weighted(f"share({n})", whole[:, k], share, coverage) for k, n in enumerate(names)]
    return Effects(rows, coverage, "variance components", columns=COLUMNS)


def _variances(values: dict[str, float], parts: tuple[Part, ...], family: Family, mean: float) -> dict[str, float]:
    found = {}
    for part in parts:
        if isinstance(part, GroupPart):
            for effect, sd in zip(part.effects, part.sds, strict=True):
                found[effect] = values[sd.name] ** 2
        else:
            for hyper in part.hyperparameters:
                if hyper.name.startswith("sd("):
                    found[part.label] = values[hyper.name] ** 2
    if "sigma" in values:
        found["residual"] = values["sigma"] ** 2
    elif family.link != "identity":
        found["residual"] = family.latent_variance(max(mean, 1e-3))
    return found


def _weighted(name: str, values: Array, share: Array, coverage: float) -> dict[str, float | str]:
    """Mean, sd and interval of numbers with weights."""
    mean = float(share @ values)
    order = np.argsort(values)
    level = np.cumsum(share[order]) - 0.5 * share[order]
    low, high = np.interp([0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage], level, values[order])
    sd = float(np.sqrt(max(float(share @ (values - mean) ** 2), 0.0)))
    return {"name": name, "mean": mean, "sd": sd, "low": float(low), "high": float(high)}


def gaussian_quantiles(parts: Sequence[Latent], family: Family, rows: Observed, q: Array) -> Array:
    """Quantiles of new Gaussian observations, of shape (len(q), rows), by bisection of a mixture of normals."""
    spread = [
        np.sqrt(family.potential(rows, part.values).predictive(part.mean, part.variance).variance) for part in parts
    ]
    reach = 9.0
    low = np.min([p.mean - reach * s for p, s in zip(parts, spread, strict=True)], axis=0) + np.zeros((len(q), 1))
    high = np.max([p.mean + reach * s for p, s in zip(parts, spread, strict=True)], axis=0) + np.zeros((len(q), 1))
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = sum(p.share * ndtr((middle - p.mean) / s) for p, s in zip(parts, spread, strict=True)) < q[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)
