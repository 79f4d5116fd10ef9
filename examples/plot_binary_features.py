"""Which features are on?
======================

Every image is a sum of some of eight 4×4 features, plus noise. The model may use 24 factors, and switches off those
that it does not need: the eight that the images were made of are left. More in :doc:`/guide/binary_factors`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin.factor import BinaryFactorAnalysis

shapes = np.zeros((8, 4, 4))
shapes[0, :, 1] = shapes[1, :, 3] = shapes[2, 0] = 1.0
shapes[3, 1, 1:] = shapes[3, :3, 2] = 1.0
shapes[4, 1:3, 1:3] = shapes[5, 2:, :2] = 1.0
shapes[6] = 1.0 - shapes[4]
shapes[7] = np.eye(4)

rng = np.random.default_rng(0)
on = rng.random((400, 8)) < 0.3
images = on @ shapes.reshape(8, 16) + 0.1 * rng.standard_normal((400, 16))
model = BinaryFactorAnalysis(24, random_state=0).fit(images)
clean = model.inverse_transform(model.transform(images))

fig, axes = plt.subplots(3, 8, figsize=(9, 4))
for name, row, pictures in zip(
    ("images", "without noise", f"{model.n_active_} features"), axes, (images, clean, model.components_), strict=True
):
    for axis in row:
        axis.set_axis_off()
    for axis, picture in zip(row, pictures, strict=False):
        axis.imshow(picture.reshape(4, 4), cmap="gray", vmin=0.0, vmax=2.0 if row is not axes[2] else 1.0)
    row[0].set_title(name, loc="left", fontsize="small")
fig.suptitle(f"bound on log p(X): {model.lower_bound_:.0f}")
plt.show()
