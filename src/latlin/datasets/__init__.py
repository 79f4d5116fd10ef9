"""Floor 3¼: tables from files, a few small real data sets, and generators of the literature."""

from latlin.datasets.bundled import DataSet, LabelledRows, correlated_logistic, load_dataset
from latlin.datasets.encoding import Encoding, fill_missing, learn_encoding
from latlin.datasets.table import read_table, write_table
from latlin.datasets.target import Guess, Target, guess_family, learn_target

__all__ = [
    "DataSet",
    "Encoding",
    "Guess",
    "LabelledRows",
    "Target",
    "correlated_logistic",
    "fill_missing",
    "guess_family",
    "learn_encoding",
    "learn_target",
    "load_dataset",
    "read_table",
    "write_table",
]
