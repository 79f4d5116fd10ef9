"""Factors that views share
========================

Four views of 200 samples. One factor acts in all of them, three in neighbouring pairs, two in one view each. The model
may use twelve factors and is not told where they act; it keeps six, which is the true number. More in
:doc:`/guide/group_factors`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin.factor import GroupFactorAnalysis

truth = np.array([[1, 1, 0, 0, 1, 0], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 0], [1, 0, 0, 1, 0, 1]])
rng = np.random.default_rng(0)
z = rng.standard_normal((200, 6))
views = {
    name: z @ (rng.standard_normal((6, 30)) * active[:, None]) + rng.standard_normal((200, 30))
    for name, active in zip(("first", "second", "third", "fourth"), truth, strict=True)
}

model = GroupFactorAnalysis(n_components=12, random_state=0).fit(views)
held_out = model.predict_view("fourth", {name: views[name] for name in ("first", "second", "third")})
explained = 1.0 - np.mean((held_out - views["fourth"]) ** 2) / views["fourth"].var()

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
left.imshow(truth, aspect="auto")
left.set(title="where the factors act", xlabel="factor", yticks=range(4), yticklabels=list(views))
model.plot_activity(right)
right.set_title(f"found: {model.n_factors_} factors, bound {model.lower_bound_:.0f}")
figure.suptitle(f"The fourth view from the other three: {100 * explained:.0f} % of its variance")
plt.show()
