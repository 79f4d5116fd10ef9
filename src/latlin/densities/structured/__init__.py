"""Covariances S = FᵀF whose factor F is linear in few parameters."""
