"""Floor 0: linear algebra, special functions, quadrature, the ascent loop, compiled kernels."""
