"""The warnings of the library. A test run turns them into errors."""


class ConvergenceWarning(UserWarning):
    """An iteration stopped before it met its tolerance; the text has the numbers and a remedy."""


class MonotonicityWarning(RuntimeWarning):
    """A bound that is promised to rise has fallen by more than rounding explains."""


class NumericalWarning(RuntimeWarning):
    """A matrix had to be changed to be factorised; the text says by how much."""
