"""How far to trust a posterior, by importance sampling against its model."""
