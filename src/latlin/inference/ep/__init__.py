"""Expectation propagation: sites by matching tilted moments (Challis 2013, §3.6)."""

from latlin.inference.ep.engine import ExpectationPropagation

__all__ = ["ExpectationPropagation"]
