"""
Ordered grades
==============

Tasters grade wines from 3 to 8. An ordinal regression has one linear predictor and learnt cut points, and gives the
probability of every grade. More in :doc:`/guide/linear`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin.datasets import load_dataset
from latlin.linear import BayesianOrdinalRegression

wine = load_dataset("wine")
rows = np.random.default_rng(0).permutation(len(wine.y))[:400]
model = BayesianOrdinalRegression(prior_scale=1.0).fit(wine.X[rows], wine.y[rows].astype(int))
print(model.summary())

alcohol = wine.feature_names.index("alcohol")
grid = np.tile(np.median(wine.X, axis=0), (50, 1))
grid[:, alcohol] = np.linspace(8.5, 14.5, 50)
fig, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.stackplot(grid[:, alcohol], model.predict_proba(grid).T, labels=[f"grade {k}" for k in model.classes_])
axis.set(xlabel="alcohol, %", ylabel="probability", ylim=(0, 1), title="Grades of a wine that is average otherwise")
axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
plt.show()
