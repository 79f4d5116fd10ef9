"""Noisy independent component analysis: heavy-tailed sources with learnt shapes."""

from latlin.factor.ica.estimator import NoisyICA

__all__ = ["NoisyICA"]
