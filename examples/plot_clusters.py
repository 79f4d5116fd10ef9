"""
Clusters of flowers
===================

A mixture may use eight clusters and keeps those that the flowers need. The histogram shows how certain it is which
cluster each flower belongs to. More in :doc:`/guide/mixtures`.
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
right.set(xlabel="probability of the most probable cluster", ylabel="flowers")
plt.show()
