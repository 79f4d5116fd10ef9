"""Derivatives of the log evidence in every parameter of every factor."""
