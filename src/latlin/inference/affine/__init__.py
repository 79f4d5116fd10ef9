"""Affine-independent KL: a Gaussian bent by one-dimensional bases, with its lower bound (Challis 2013, chapter 6)."""
