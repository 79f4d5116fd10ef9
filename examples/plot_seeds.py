"""
Germination of seeds
====================

How many seeds germinate on 21 plates, by kind of seed and root extract (Crowder 1978): a binomial response whose plates
differ more than by chance. More in :doc:`/guide/additive`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin import plot
from latlin.additive import AdditiveModel

frame = {
    "germinated": np.array([10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3]),
    "seeds": np.array([39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7]),
    "kind": np.repeat(["aegyptiaca 75", "aegyptiaca 73"], [11, 10]),
    "extract": np.repeat(["bean", "cucumber", "bean", "cucumber"], [5, 6, 5, 5]),
    "plate": np.arange(21),
}

model = AdditiveModel("germinated | trials(seeds) ~ kind * extract + (1 | plate)", family="binomial").fit(frame)
print(model.summary())
print(model.contrasts("extract"))

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot.forest(model.effects("plate"), left, sort=False)
plot.densities(model, axes=np.array([right]))
plt.show()
