"""A model on disk: the estimator's archive, with a card inside that says what was found.

The card is part of the archive's header, so that `latlin.load` reads the same file and finds the estimator.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from latlin.datasets.encoding import Encoding
from latlin.datasets.target import Target
from latlin.numerics.archived import load_with_card, save_with_card
from latlin.report.facts import Facts

FORMAT = 2


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
        "target": model.target.to_json(),
        "facts": model.facts.to_json(),
    }
    model.estimator.encoding_ = model.encoding  # so that `latlin.load` gives a model that reads tables as they come
    save_with_card(path, model.estimator, card)


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model; a file that is none, or of a later format, gets a sentence, and nothing in it is run."""
    where = os.fspath(path)
    try:
        estimator, card = load_with_card(path)
    except ValueError as error:
        raise ValueError(f"{where} is not a model written by 'latlin fit': {error}") from error
    if not isinstance(card, dict) or not isinstance(card.get("format"), int):
        raise ValueError(f"{where} is not a model written by 'latlin fit': it has no card")
    if card["format"] > FORMAT:
        raise ValueError(f"{where} has format {card['format']}, and this latlin reads up to {FORMAT}: upgrade it")
    try:
        target, facts = Target.from_json(card["target"]), Facts.from_json(card["facts"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{where} has a card that cannot be read: {error}") from error
    encoding = getattr(estimator, "encoding_", None)
    if encoding is None:
        raise ValueError(f"{where} is not a model written by 'latlin fit': it does not say how tables become numbers")
    return Model(estimator, encoding, target, facts)
