"""One response on one design: the model for given hyperparameters, and the gradient of its evidence in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from latlin.inference.evidence.gradient import EvidenceGradient, evidence_gradient
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.linear._design import Design
from latlin.linear._families import Targets
from latlin.linear._priors import Prior
from latlin.potentials.families import Family

#: hyperparameters by name: "prior_scale" and those of the likelihood and of the prior
Values = Mapping[str, Any]


def hyper_slopes(
    design: Design, family: Family, prior: Prior, values: Values, slopes: EvidenceGradient
) -> dict[str, Any]:
    """∂ log Z / ∂ hyperparameter from the derivatives in the factors' own parameters."""
    found = slopes.sites[-1]
    likelihood = {n: found[n] if np.ndim(values[n]) else float(np.sum(found[n])) for n in family.parameters}
    return {**likelihood, **prior.gradient(design, values, slopes)}


@dataclass(frozen=True)
class Problem:
    """Rows, observations, likelihood and prior; hyperparameters are given when asked.

    Parameters
    ----------
    rows : array or sparse matrix of shape (n, design.dim)
    targets : Targets
    design : Design
    family : Family
    prior : Prior
    intercept : tuple of float
        Mean and standard deviation of the prior of the intercept.
    """

    rows: Any
    targets: Targets
    design: Design
    family: Family
    prior: Prior
    intercept: tuple[float, float]

    def model(self, values: Values) -> LatentLinearModel:
        """The prior first, then the observations."""
        sites = SiteFactor(
            self.rows, self.family.potential(self.targets.y, values), self.targets.weight, self.targets.offset
        )
        return LatentLinearModel([self.prior.factor(self.design, self.intercept, values), sites])

    def gradient(self, posterior: Posterior, values: Values) -> dict[str, Any]:
        """∂ log Z / ∂ hyperparameter, re-optimised; one number a feature for "prior_scale"."""
        return hyper_slopes(self.design, self.family, self.prior, values, evidence_gradient(posterior))

    @cached_property
    def feature_size(self) -> float:
        """The root mean square of features that are not standardised; 1 where they are."""
        if np.any(self.design.spread != 1.0):
            return 1.0
        features = self.rows[:, : self.design.n_features]
        squares = features.multiply(features) if sparse.issparse(features) else np.square(features)
        size = np.average(np.asarray(squares.mean(axis=1)).ravel(), weights=self.targets.weight)
        return float(np.sqrt(size)) or 1.0

    @cached_property
    def unit(self) -> float:
        """The natural size of a coefficient of a standardised feature."""
        return self.family.unit(self.targets)
