"""Mean field: one free-form factor per coordinate (Challis 2013, §3.7)."""

from latlin.inference.mean_field.engine import MeanField

__all__ = ["MeanField"]
