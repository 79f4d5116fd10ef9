"""The checkpoint of a search over parameters: the best ones so far, and what the fitter had chosen by then."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from latlin.gp.approximation import Fitter
from latlin.gp.setting import Setting
from latlin.numerics.archive import read_archive, refusing, write_archive
from latlin.numerics.arrays import Array
from latlin.numerics.options import file_path
from latlin.numerics.stored import Decoder, Encoder

#: kind of file
KIND = "latlin.gp.search"


@dataclass
class Journal:
    """A file that a search writes now and then, and from which the same search goes on.

    Parameters
    ----------
    path : path
    fingerprint : str
        What the search belongs to: options and rows.
    every : float
        Seconds between two writings at least.
    """

    path: str | os.PathLike[str]
    fingerprint: str
    every: float = 10.0
    written: float = -np.inf

    def __post_init__(self) -> None:
        file_path("checkpoint", self.path)

    def note(self, theta: Array, fitter: Fitter, now: bool = False) -> None:
        """Keep these parameters, unless the file was written a moment ago."""
        if not now and time.monotonic() - self.written < self.every:
            return
        encoder = Encoder()
        kept = encoder.encode(_kept(fitter), "fitter")
        header = {"fingerprint": self.fingerprint, "fitter": kept}
        write_archive(self.path, KIND, header, encoder.arrays | {"theta": np.asarray(theta)})
        self.written = time.monotonic()

    def resumed(self, setting: Setting, fitter: Fitter) -> tuple[Setting, Fitter]:
        """Where the search stood, if there is a file."""
        if not os.path.exists(self.path):
            return setting, fitter
        _, header, arrays = read_archive(self.path, KIND)
        with refusing(self.path):
            if header["fingerprint"] != self.fingerprint:
                raise ValueError("it belongs to another model or to other rows")
            kept = Decoder(arrays).decode(header["fitter"])
            return setting.at(arrays["theta"]), fitter if kept is None else _resumed(fitter, kept)


def _kept(fitter: Any) -> Any:
    return fitter.kept() if hasattr(fitter, "kept") else None


def _resumed(fitter: Any, kept: Any) -> Fitter:
    found: Fitter = fitter.resumed(kept)
    return found
