"""
Seizure counts that vary more than Poisson's
============================================

Four counts for each of 59 patients under a drug or a placebo (Thall and Vail 1990). Patients differ and visits differ;
the interval of the drug's effect takes both into account. More in :doc:`/guide/additive`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin import plot
from latlin.additive import AdditiveModel

# drug, seizures in the eight weeks before, age, and seizures in four periods of two weeks; one patient after the other
PATIENTS = """
0 11 31 5 3 3 3; 0 11 30 3 5 3 3; 0 6 25 2 4 0 5; 0 8 36 4 4 1 4; 0 66 22 7 18 9 21; 0 27 29 5 2 8 7; 0 12 31 6 4 0 2;
0 52 42 40 20 23 12; 0 23 37 5 6 6 5; 0 10 28 14 13 6 0; 0 52 36 26 12 6 22; 0 33 24 12 6 8 4; 0 18 23 4 4 6 2; 0 42
36 7 9 12 14; 0 87 26 16 24 10 9; 0 50 26 11 0 0 5; 0 18 28 0 0 3 3; 0 111 31 37 29 28 29; 0 18 32 3 5 2 5; 0 20 21 3
0 6 7; 0 12 29 3 4 3 4; 0 9 21 3 4 3 4; 0 17 32 2 3 3 5; 0 28 25 8 12 2 8; 0 55 30 18 24 76 25; 0 9 40 2 1 2 1; 0 10
19 3 1 4 2; 0 47 22 13 15 13 12; 1 76 18 11 14 9 8; 1 38 32 8 7 9 4; 1 19 20 0 4 3 0; 1 10 30 3 6 1 3; 1 19 18 2 6 7
4; 1 24 24 4 3 1 3; 1 31 30 22 17 19 16; 1 14 35 5 4 7 4; 1 11 27 2 4 0 4; 1 67 20 3 7 7 7; 1 41 22 4 18 2 5; 1 7 28 2
1 1 0; 1 22 23 0 2 4 0; 1 13 40 5 4 0 3; 1 46 33 11 14 25 15; 1 36 21 10 5 3 8; 1 38 35 19 7 6 7; 1 7 25 1 1 2 3; 1 36
26 6 10 8 8; 1 11 25 2 1 0 0; 1 151 22 102 65 72 63; 1 22 32 4 3 2 4; 1 41 25 8 6 5 7; 1 32 35 1 3 1 5; 1 56 21 18 11
28 13; 1 24 41 6 3 4 0; 1 16 32 3 5 4 3; 1 22 26 1 23 19 8; 1 25 21 2 3 0 1; 1 13 36 0 0 0 0; 1 12 37 1 4 3 2
"""
table = np.array([row.split() for row in PATIENTS.replace("\n", " ").split(";")], dtype=float)
frame = {
    "seizures": table[:, 3:].ravel(),
    "drug": table[:, 0].repeat(4),
    "base": np.log(table[:, 1] / 4.0).repeat(4),
    "age": np.log(table[:, 2]).repeat(4),
    "patient": np.arange(59).repeat(4),
    "visit": np.arange(236),
}

model = AdditiveModel("seizures ~ base * drug + age + (1 | patient) + (1 | visit)", family="poisson").fit(frame)
print(model.summary())
print(model.loo())

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
plot.forest(model, left, sort=False)
plot.pit(model.loo(), right)
plt.show()
