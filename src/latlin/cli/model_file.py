"""A model on disk: the estimator's archive, with a card inside that says how rows become numbers and what was found.

The card is JSON in a member of its own, so that `latlin.load` reads the same file and finds the estimator.
"""

from __future__ import annotations

import json
import os
import zipfile
from typing import Any, NamedTuple

from latlin.datasets.encoding import Encoding
from latlin.datasets.target import Target
from latlin.numerics.atomic import replacing
from latlin.persistence import load
from latlin.report.facts import Facts

CARD, FORMAT = "card.json", 1
LARGEST = 64 * 2**20


class Model(NamedTuple):
    """A fitted estimator with the way to it from a table, and what is known about the fit."""

    estimator: Any
    encoding: Encoding
    target: Target
    facts: Facts


def save_model(path: str | os.PathLike[str], model: Model) -> None:
    """Write a model, all or nothing."""
    card = {
        "format": FORMAT,
        "encoding": model.encoding.to_json(),
        "target": model.target.to_json(),
        "facts": model.facts.to_json(),
    }
    with replacing(path) as fresh:
        model.estimator.save(fresh)
        with zipfile.ZipFile(fresh, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(CARD, json.dumps(card, allow_nan=False))


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model; a file that is none, or of a later format, gets a sentence, and nothing in it is run."""
    card = _card(path)
    estimator = load(path)
    try:
        encoding, target = Encoding.from_json(card["encoding"]), Target.from_json(card["target"])
        facts = Facts.from_json(card["facts"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{os.fspath(path)} has a card that cannot be read: {error}") from error
    return Model(estimator, encoding, target, facts)


def _card(path: str | os.PathLike[str]) -> dict[str, Any]:
    where = os.fspath(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {where}")
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(CARD).file_size > LARGEST:
                raise ValueError("its card is too large")
            card = json.loads(archive.read(CARD))
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, RuntimeError) as error:
        raise ValueError(f"{where} is not a model written by 'latlin fit': {error}") from error
    if not isinstance(card, dict) or not isinstance(card.get("format"), int):
        raise ValueError(f"{where} is not a model written by 'latlin fit': its card says no format")
    if card["format"] > FORMAT:
        raise ValueError(f"{where} has format {card['format']}, and this latlin reads up to {FORMAT}: upgrade it")
    return card
