"""
Dates and prices as they come
=============================

A column of dates becomes three kinds of features: a trend, a season and the day of the week. Prices are read as people
write them, such as $1,200. (Simulated sales.) More in :doc:`/guide/command_line`.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas

from latlin.linear import BayesianLinearRegression

rng = np.random.default_rng(0)
day = pandas.date_range("2022-01-03", periods=600, freq="D")
price = rng.integers(900, 1300, 600)
level = 50 + 10 * np.cos(2 * np.pi * (day.day_of_year - 190) / 365) + 8 * (day.day_of_week == 5) - 0.02 * (price - 1000)
sales = pandas.DataFrame(
    {"day": day, "price": [f"${p:,}" for p in price], "sold": level + 3 * rng.standard_normal(600)}
)

model = BayesianLinearRegression().fit(sales[:400], "sold", dates=["day"], numbers=["price"])
print(model.summary())

low, high = model.predict_interval(sales, coverage=0.9).T
fig, axis = plt.subplots(figsize=(9, 4), layout="constrained")
axis.plot(day, sales["sold"], "k.", ms=2)
axis.fill_between(day, low, high, alpha=0.3, lw=0)
axis.axvline(day[400], color="black", lw=0.8)
axis.set(ylabel="sold per day", title="The last 200 days were not seen")
plt.show()
