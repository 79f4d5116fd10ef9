"""Names that every room shares: the type of an array of real numbers, and constants of Gaussian densities."""

import numpy as np
from numpy.typing import NDArray

#: an array of float64 numbers of any shape
Array = NDArray[np.float64]
#: log 2π
LOG_2PI = float(np.log(2.0 * np.pi))
