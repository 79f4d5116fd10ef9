"""Bayesian Gaussian mixtures: one exact bound and every way to climb it."""

from latlin.mixture import gradients, schedules
from latlin.mixture.estimator import BayesianGaussianMixture

__all__ = ["BayesianGaussianMixture", "gradients", "schedules"]
