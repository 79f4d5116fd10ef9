"""
Factors behind a table
======================

Thirteen measurements of wines, three factors: which measurements go together, and which wines
are alike. More in :doc:`/guide/factor_analysis`.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from latlin import plot
from latlin.factor import FactorAnalysis

wine = load_wine()
X = (wine.data - wine.data.mean(axis=0)) / wine.data.std(axis=0)
model = FactorAnalysis(3, rotate="varimax").fit(X)
print(model.evidence_kind_, round(model.log_evidence_, 1), "noise:", np.round(model.noise_variance_, 2))

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
plot.loadings(model, left, names=wine.feature_names)
scores = model.transform(X)
right.scatter(scores[:, 0], scores[:, 1], c=wine.target, s=14)
right.set(xlabel="factor 1", ylabel="factor 2", title="colours: the grower, which the model has not seen")
plt.show()
