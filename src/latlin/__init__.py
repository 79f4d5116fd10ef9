"""Deterministic Bayesian inference in latent linear models."""
