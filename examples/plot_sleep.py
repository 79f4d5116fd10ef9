"""
A slope for every subject
=========================

Reaction times of 18 subjects over ten days with three hours of sleep per night (Belenky and others 2003): almost
everybody slows down, some more than others. Intercepts and slopes vary between subjects and may be correlated. More in
:doc:`/guide/additive`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin.additive import AdditiveModel

# per subject: its number, and its mean reaction time in ms on the days 0, …, 9
TIMES = """
308 249.56 258.7047 250.8006 321.4398 356.8519 414.6901 382.2038 290.1486 430.5853 466.3535
309 222.7339 205.2658 202.9778 204.707 207.7161 215.9618 213.6303 217.7272 224.2957 237.3142
310 199.0539 194.3322 234.32 232.8416 229.3074 220.4579 235.4208 255.7511 261.0125 247.5153
330 321.5426 300.4002 283.8565 285.133 285.7973 297.5855 280.2396 318.2613 305.3495 354.0487
331 287.6079 285 301.8206 320.1153 316.2773 293.3187 290.075 334.8177 293.7469 371.5811
332 234.8606 242.8118 272.9613 309.7688 317.4629 309.9976 454.1619 346.8311 330.3003 253.8644
333 283.8424 289.555 276.7693 299.8097 297.171 338.1665 332.0265 348.8399 333.36 362.0428
334 265.4731 276.2012 243.3647 254.6723 279.0244 284.1912 305.5248 331.5229 335.7469 377.299
335 241.6083 273.9472 254.4907 270.8021 251.4519 254.6362 245.4523 235.311 235.7541 237.2466
337 312.3666 313.8058 291.6112 346.1222 365.7324 391.8385 404.2601 416.6923 455.8643 458.9167
349 236.1032 230.3167 238.9256 254.922 250.7103 269.7744 281.5648 308.102 336.2806 351.6451
350 256.2968 243.4543 256.2046 255.5271 268.9165 329.7247 379.4445 362.9184 394.4872 389.0527
351 250.5265 300.0576 269.8939 280.5891 271.8274 304.6336 287.7466 266.5955 321.5418 347.5655
352 221.6771 298.1939 326.8785 346.8555 348.7402 352.8287 354.4266 360.4326 375.6406 388.5417
369 271.9235 268.4369 257.2424 277.6566 314.8222 317.2135 298.1353 348.1229 340.28 366.5131
370 225.264 234.5235 238.9008 240.473 267.5373 344.1937 281.1481 347.5855 365.163 372.2288
371 269.8804 272.4428 277.8989 281.7895 279.1705 284.512 259.2658 304.6306 350.7807 369.4692
372 269.4117 273.474 297.5968 310.6316 287.1726 329.6076 334.4818 343.2199 369.1417 364.1236
"""
table = np.array([row.split() for row in TIMES.strip().splitlines()], dtype=float)
numbers = table[:, 0].astype(int)
frame = {"reaction": table[:, 1:].ravel(), "days": np.tile(np.arange(10.0), 18), "subject": numbers.repeat(10)}

model = AdditiveModel("reaction ~ days + (1 + days | subject)").fit(frame)
print(model.summary())

fig, axes = plt.subplots(3, 6, figsize=(11, 5.5), sharex=True, sharey=True, layout="constrained")
grid = np.linspace(0.0, 9.0, 30)
for number, measured, axis in zip(numbers, table[:, 1:], axes.flat, strict=True):
    new = {"days": grid, "subject": np.full(30, number)}
    low, high = model.predict_interval(new, 0.9).T
    axis.fill_between(grid, low, high, alpha=0.25, lw=0)
    axis.plot(grid, model.predict(new))
    axis.plot(np.arange(10), measured, "k.", markersize=4)
    axis.set_title(f"subject {number}", fontsize=8)
fig.supxlabel("days")
fig.supylabel("reaction time, ms")
plt.show()
