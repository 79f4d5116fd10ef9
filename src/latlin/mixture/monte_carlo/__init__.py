"""Gradients of the bound of a mixture by Monte Carlo: score, pathwise, Gumbel, importance weighted."""
