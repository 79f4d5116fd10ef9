"""
Radon in homes, county by county
================================

Some counties have one measured home, some a hundred. The fewer homes a county has, the more its level is pulled towards
the mean of all counties (Gelman and Hill 2007). More in :doc:`/guide/additive`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin import plot
from latlin.additive import AdditiveModel
from latlin.datasets import load_dataset

radon = load_dataset("radon").to_pandas()
model = AdditiveModel("log_radon ~ floor + log_uranium + (1 | county)").fit(radon)
print(model.summary())
print(f"two homes of one county correlate by {model.intraclass_correlation('county'):.2f}")

# what each county says alone: its mean residual from the coefficients
b = model.effects()
rest = radon["log_radon"] - b["Intercept"]["mean"] - b["floor"]["mean"] * radon["floor"]
rest -= b["log_uranium"]["mean"] * radon["log_uranium"]
alone = rest.groupby(radon["county"]).mean().to_numpy()

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 9), layout="constrained", width_ratios=[2, 1])
plot.shrinkage(model, "county", alone, left)
left.tick_params(axis="y", labelsize=5)
new = {"floor": np.array([0.0, 1.0]), "log_uranium": np.array([0.0, 0.0]), "county": np.array([999.0, 999.0])}
draws = model.sample_predictive(new, 4000, random_state=0)
right.hist(draws, bins=40, density=True, histtype="step", label=["basement", "first floor"])
right.set_xlabel("log radon of a home in a county not seen yet")
right.legend(frameon=False)
plt.show()
