"""Local variational bounds: every site replaced by a quadratic lower bound (Challis 2013, §3.8)."""

from latlin.inference.local_bound.engine import LocalBound

__all__ = ["LocalBound"]
