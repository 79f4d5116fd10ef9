"""Gaussian KL: the Gaussian closest to the posterior in KL(q‖p), full or with a structured covariance."""
