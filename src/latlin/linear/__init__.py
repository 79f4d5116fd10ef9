"""Bayesian linear models with the face of scikit-learn: regression, classification, counts, ordered classes."""

from latlin.linear.classifiers import BayesianLogisticRegression, BayesianProbitRegression
from latlin.linear.gaussian_regression import BayesianLinearRegression

__all__ = ["BayesianLinearRegression", "BayesianLogisticRegression", "BayesianProbitRegression"]
