"""Options that several commands have, how their words are read, and where `latlin fit` computes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from logging import CRITICAL
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from latlin.cli.screen import show_steps
from latlin.distributed.clusters import WORKER_SETTINGS

# --- Where `latlin fit` computes when the rows come in blocks: threads, processes of this machine, or a cluster.

#: seconds to wait for the answer of a scheduler
PATIENCE = 10


@contextmanager
def compute_with(words: str) -> Iterator[None]:
    """Dask computes there while this lasts: "threads", "local" (one process per core) or the address of a scheduler."""
    need_dask()
    if words == "threads":
        yield from _threads()
    elif words == "local":
        yield from _local()
    elif "://" in words:
        yield from _cluster(words)
    else:
        raise ValueError(f"scheduler must be 'threads', 'local' or an address like tcp://host:8786, got {words!r}")


def need_dask() -> None:
    """A sentence that says what to install, if Dask is missing."""
    try:
        import_module("dask.dataframe")
        import_module("distributed")
    except ImportError as error:
        raise ImportError("rows in blocks need Dask: install latlin[cli,parquet,dask]") from error


def _threads() -> Iterator[None]:
    import dask

    with dask.config.set(scheduler="threads"):
        yield


def _local() -> Iterator[None]:
    import dask

    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    options["silence_logs"] = CRITICAL  # what a block refuses is said here, once
    with (
        dask.config.set(WORKER_SETTINGS),
        LocalCluster(n_workers=os.cpu_count(), processes=True, **options) as cluster,
        Client(cluster),
    ):
        yield


def _cluster(address: str) -> Iterator[None]:
    from distributed.comm import get_address_host_port

    from distributed import Client

    try:
        # a client of an address that is none would not connect, nor let go of Dask
        get_address_host_port(address)
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise ValueError(f"no scheduler answers at {address}: {error}") from error
    with client:
        yield


# --- Flags take no value, and the help shows none for them, whatever the version of Typer.


class CommandWithFlags(TyperCommand):
    """A command whose help shows `--quiet`, not `--quiet <bool>`."""

    def get_params(self, ctx: Any) -> Any:
        return _without_values(super().get_params(ctx))


class GroupWithFlags(TyperGroup):
    """The same of the program itself."""

    def get_params(self, ctx: Any) -> Any:
        return _without_values(super().get_params(ctx))


def _without_values(params: Any) -> Any:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


# --- The options.

Data = Annotated[
    Path, typer.Argument(help="A table: .csv, .tsv (also .gz) or .parquet; or a pattern of Parquet files, in quotes.")
]
ModelFile = Annotated[Path, typer.Argument(help="A model written by 'latlin fit'.")]
TargetName = Annotated[
    str, typer.Option("--target", "-t", metavar="COLUMN", help="The column to explain; a formula names it itself.")
]
Missing = Annotated[
    str,
    typer.Option(
        help="What to do with missing values: error, drop (the row), mean, indicator (mean and a mark), model (by the "
        "other columns)."
    ),
]
Drop = Annotated[list[str] | None, typer.Option(metavar="COLUMN,…", help="Columns to leave out.")]
Categorical = Annotated[list[str] | None, typer.Option(metavar="COLUMN,…", help="Columns whose numbers are levels.")]
Dates = Annotated[list[str] | None, typer.Option(metavar="COLUMN,…", help="Columns of dates to make features of.")]
Numbers = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN,…", help="Columns of numbers written like $12.30, 1,234 or 12 %."),
]
Coding = Annotated[
    str,
    typer.Option(
        help="Levels as numbers: treatment (differences from a reference level), sum (from the mean), one-hot."
    ),
]
Reference = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN=LEVEL,…", help="The level that others are compared with, the first unless given."),
]
MissingValues = Annotated[str, typer.Option(metavar="TEXT,…", help="Texts that mean a missing value, such as 'n/a,?'.")]
Separator = Annotated[
    str | None, typer.Option(help="What separates columns of a text file; by its ending unless given.")
]
Decimal = Annotated[str, typer.Option(help="The decimal mark of a text file: . or ,")]
Levels = Annotated[str, typer.Option(metavar="LEVEL,…", help="Ordered levels of the target, lowest first.")]
PriorScale = Annotated[str, typer.Option(help="Prior standard deviation of a standardised coefficient, or auto.")]
Hyperparameters = Annotated[
    str,
    typer.Option(
        metavar="WAY",
        help="How scales and the like are learnt: integrate (averaged over, slower), maximise, or auto.",
    ),
]
Exposure = Annotated[str, typer.Option(metavar="COLUMN", help="The column of exposures of counts or amounts.")]
Frequency = Annotated[
    str, typer.Option(metavar="COLUMN", help="The column that counts how often each row was observed.")
]
Trials = Annotated[str, typer.Option(metavar="COLUMN", help="The column of trials, for the family binomial.")]
Event = Annotated[
    str,
    typer.Option(
        metavar="COLUMN", help="The column of events (1 seen, 0 comes later, 2 came earlier), for survival times."
    ),
]
Quantile = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", help="Explain the value below which this share of rows lies: 0.9; the median is 0.5."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Read many files in blocks of rows, by Dask: threads, local (processes) or a scheduler's address."
    ),
]
SafeCsv = Annotated[
    bool,
    typer.Option("--safe-csv", help="Put an apostrophe before texts that a spreadsheet would run (= + - @)."),
]
Formula = Annotated[
    str,
    typer.Option(
        metavar="FORMULA",
        help="A hierarchical or additive model, such as 'y ~ x + (1 | g) + s(t)', in place of a target.",
    ),
]
Formulas = Annotated[
    list[str] | None,
    typer.Option(metavar="FORMULA", help="Additive models to compare by leave-one-out; give it twice or more."),
]
FamilyNames = Annotated[
    str, typer.Option(metavar="NAME,…", help="Families to compare; unless given, those that suit the target.")
]
Graph = Annotated[Path | None, typer.Option(help="A table with two columns, pairs of neighbours, for besag and bym2.")]
FamilyName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto (by the values of the target), linear, robust, sparse, quantile; logistic, probit, softmax, "
        "multinomial-probit, ordinal; poisson, "
        "negative-binomial, generalised-poisson, zero-inflated-…, hurdle-…; binomial, beta-binomial, beta; gamma, "
        "inverse-gaussian, log-normal, tweedie; weibull, exponential, log-logistic. With a formula also gaussian, "
        "student-t, laplace, cauchy, logistic-noise, huber, asymmetric-laplace, bernoulli and cloglog, but not sparse, "
        "quantile, softmax and multinomial-probit.",
    ),
]
EngineNames = Annotated[
    str, typer.Option(metavar="NAME,…", help="Engines to compare: map, laplace, lvb, ep, gkl, ai-kl, mean-field.")
]
Group = Annotated[
    str, typer.Option(metavar="COLUMN", help="The column of groups: rows of one group are held out together.")
]
Time = Annotated[
    str, typer.Option(metavar="COLUMN", help="The column of times: rows are predicted from earlier ones only.")
]
FoldsOfFit = Annotated[
    int | None,
    typer.Option(min=0, help="Folds of held-out rows, 0 for none; 5 unless given, 0 for rows in blocks."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]


def read_file(data: Path, sep: str | None, decimal: str, missing_values: str, frequency: str = "") -> Any:
    """The table of a file, as the options say; each row as often as it was observed."""
    from latlin.datasets.table import read_table, repeat_rows

    table = read_table(data, sep=sep, decimal=decimal, missing_values=split_list(missing_values))
    return repeat_rows(table, frequency) if frequency else table


def names_of(given: list[str] | None) -> tuple[str, ...]:
    """Columns, given one by one or with commas between."""
    return tuple(name for words in given or () for name in split_list(words))


def split_list(words: str) -> list[str]:
    """The parts of a text with commas between.

    Examples
    --------
    >>> split_list("age, size,")
    ['age', 'size']
    """
    return [part.strip() for part in words.split(",") if part.strip()]


class PredictionOptions(NamedTuple):
    """What to predict: the probability of intervals, what to do with gaps, whether to keep the table's columns, and how
    to read text files."""

    coverage: float = 0.9
    missing: str | None = None
    keep: bool = False
    reading: Mapping[str, Any] = MappingProxyType({})


def load_table(quiet: bool, *how: Any) -> Any:
    """A table from a file, with a bar."""
    with show_steps("Reading", 1, quiet):
        return read_file(*how)
