"""Expectation propagation: sites by matching tilted moments (Challis 2013, §3.6)."""
