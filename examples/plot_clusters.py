"""
Clusters of flowers
===================

A mixture with room for eight clusters keeps those that the flowers need, and says how sure each flower is of its own.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from latlin import plot
from latlin.mixture import BayesianGaussianMixture

flowers = load_iris()
mixture = BayesianGaussianMixture(8, random_state=0).fit(flowers.data)
print(mixture.n_active_, "clusters;", mixture.evidence_kind_, round(mixture.log_evidence_, 1))

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot.clusters(mixture, flowers.data, (2, 3), left, names=flowers.feature_names)
right.hist(mixture.predict_proba(flowers.data).max(axis=1), bins=20)
right.set(xlabel="probability of a flower's own cluster", ylabel="flowers")
plt.show()
