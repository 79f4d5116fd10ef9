"""The type of the arrays that the entries pass on."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
