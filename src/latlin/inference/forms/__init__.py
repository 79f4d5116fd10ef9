"""The coordinates in which engines work: where the sums over sites, the solves and the variances come from."""
