"""Bayesian Gaussian mixtures: one exact bound and every way to climb it."""
