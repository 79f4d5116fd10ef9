"""Local variational bounds: every site replaced by a quadratic lower bound (Challis 2013, §3.8)."""
