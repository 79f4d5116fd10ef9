"""Draws for ArviZ: coefficients, log p and log q (so that draws can be reweighted), and pointwise log-likelihoods."""

from __future__ import annotations

from typing import Any

import numpy as np

from latlin.inference.diagnosis.log_joint import log_joint
from latlin.inference.forms.sites import Sites
from latlin.inference.model import in_memory
from latlin.inference.posterior import Posterior
from latlin.linear._design import Design
from latlin.numerics.arrays import Array


def inference_groups(posterior: Posterior, design: Design, w: Array) -> dict[str, dict[str, Array]]:
    """Groups of arrays with leading axes (chain, draw) for draws w of one posterior."""
    coef, intercept = design.coefficients(w)
    model = in_memory(posterior.model)
    data = model.sites[-1]
    sites = Sites.of(model)
    (span, potential) = sites.blocks[-1]
    x = np.asarray(data.H @ w.T).T
    draws = {"coef": coef} | ({"intercept": intercept} if design.intercept else {})
    return {
        "posterior": {key: value[None] for key, value in draws.items()},
        "sample_stats": {"lp": log_joint(model)(w)[None], "log_q": np.asarray(posterior.logpdf(w))[None]},
        "log_likelihood": {"y": sites.part(span).log_density(x)[None]},
        "observed_data": {"y": potential.observed},
    }


def inference_data(posterior: Posterior, design: Design, names: list[str], w: Array) -> Any:
    """An `arviz.InferenceData`; of ArviZ 1 and later the `DataTree` that took its place."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz() needs ArviZ: pip install 'latlin[arviz]'") from error
    groups: dict[str, Any] = dict(inference_groups(posterior, design, w))
    named: dict[str, Any] = {"coords": {"feature": names}, "dims": {"coef": ["feature"]}}
    is_one = int(getattr(arviz, "__version__", "0").partition(".")[0]) >= 1
    return arviz.from_dict(groups, **named) if is_one else arviz.from_dict(**groups, **named)
