"""Floor 4: tables from files, and a few small real data sets."""

from latlin.datasets.bundled import DataSet, load_dataset
from latlin.datasets.encoding import Encoding, learn_encoding
from latlin.datasets.table import read_table, write_table
from latlin.datasets.target import Guess, Target, guess_family, learn_target

__all__ = [
    "DataSet",
    "Encoding",
    "Guess",
    "Target",
    "guess_family",
    "learn_encoding",
    "learn_target",
    "load_dataset",
    "read_table",
    "write_table",
]
