"""`latlin.load`: what was saved, made again by the kind that its file names, from a list; nothing in it is ever run."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from latlin.numerics.archive import read_archive

#: kinds that files may name → their module
KINDS = {
    "latlin.factor.BinaryFactorAnalysis": "latlin.factor",
    "latlin.factor.FactorAnalysis": "latlin.factor",
    "latlin.factor.GroupFactorAnalysis": "latlin.factor",
    "latlin.factor.MixedFactorAnalysis": "latlin.factor",
    "latlin.factor.NoisyICA": "latlin.factor",
    "latlin.gp.GaussianProcessClassifier": "latlin.gp",
    "latlin.gp.GaussianProcessRegressor": "latlin.gp",
    "latlin.inference.Posterior": "latlin.inference.posterior",
    "latlin.linear.BayesianBetaRegression": "latlin.linear",
    "latlin.linear.BayesianSurvivalRegression": "latlin.linear",
    "latlin.linear.BayesianQuantileRegression": "latlin.linear",
    "latlin.linear.BayesianBinomialRegression": "latlin.linear",
    "latlin.linear.BayesianCountRegression": "latlin.linear",
    "latlin.linear.BayesianGammaRegression": "latlin.linear",
    "latlin.linear.BayesianLinearRegression": "latlin.linear",
    "latlin.linear.BayesianLogisticRegression": "latlin.linear",
    "latlin.linear.BayesianOrdinalRegression": "latlin.linear",
    "latlin.linear.BayesianPoissonRegression": "latlin.linear",
    "latlin.linear.BayesianProbitRegression": "latlin.linear",
    "latlin.linear.RobustRegression": "latlin.linear",
    "latlin.linear.SparseRegression": "latlin.linear",
    "latlin.mixture.BayesianGaussianMixture": "latlin.mixture",
}


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator, or a posterior, that its `save` wrote.

    Parameters
    ----------
    path : path
        An archive of arrays and JSON; a damaged or unknown one gives a ValueError, and no file can make this run code.

    Returns
    -------
    The fitted estimator, or the posterior.
    """
    kind = read_archive(path)[0].get("kind")
    if kind not in KINDS:
        raise ValueError(
            f"{os.fspath(path)} holds {kind!r:.80}, which is not a saved estimator or posterior of this latlin"
        )
    cls = getattr(import_module(KINDS[kind]), kind.rpartition(".")[2])
    return cls.load(path)
