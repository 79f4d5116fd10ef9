"""Parts from a file fit together before a compiled loop follows them: a place out of range could read anywhere."""

import copy

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

from latlin.densities.chain import Chain, ChainCovariance
from latlin.densities.precision import DiagonalWhitening
from latlin.densities.structured.base import DiagonalStructure, StructuredCovariance, banded_triangle
from latlin.densities.structured.loadings import ChevronStructure, LowRankStructure, SubspaceStructure
from latlin.gp.conditionals import Neighbourhoods
from latlin.gp.vecchia import selection_matrix
from latlin.numerics.stored import Decoder, Encoder

RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((6, 2))


def structured(structure):
    return StructuredCovariance(DiagonalWhitening(np.ones(structure.dim)), structure, np.ones(structure.size))


HELD = {
    "banded": structured(banded_triangle(4, 1)),
    "diagonal": structured(DiagonalStructure(4)),
    "chevron": structured(ChevronStructure(4, np.array([2, 0]))),
    "low-rank": structured(LowRankStructure(4, 2)),
    "subspace": structured(SubspaceStructure(np.eye(4)[:, :2], banded_triangle(2, 1))),
    "chain": ChainCovariance(Chain(np.ones((3, 1, 1)), np.ones((3, 1, 1)), np.ones(1)), np.ones(3)),
    "neighbours": Neighbourhoods.of(INPUTS, 2),
    "conditionals": Neighbourhoods.of(INPUTS, 2).conditionals(RBF(1.0)),
}
#: other arrays in the place of one, and whether only one of places is refused
CHANGES = {
    "one fewer": (lambda array: array.reshape(-1)[:-1], False),
    "twice": (lambda array: np.stack([array, array]), False),
    "none": (lambda array: array[:0], False),
    "too far": (lambda array: array + 100, True),
    "far below": (lambda array: np.full_like(array, -(2**40)), True),
    "no places": (lambda array: array.astype(float), True),
}


def stored(held):
    encoder = Encoder()
    return encoder.encode(held, "held"), encoder.arrays


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", HELD)
def test_arrays_that_do_not_fit_are_refused(name, change):
    header, arrays = stored(HELD[name])
    assert type(Decoder(arrays).decode(header)) is type(HELD[name])
    alter, only_places = CHANGES[change]
    for part, array in arrays.items():
        if part.endswith(".scales") or (only_places and array.dtype.kind == "f"):
            continue
        with pytest.raises(ValueError):
            Decoder(arrays | {part: alter(array)}).decode(header)


def numbers(node):
    """Every place of an integer in what is stored of an object."""
    for key, value in node.items() if isinstance(node, dict) else ():
        if isinstance(value, int) and not isinstance(value, bool):
            yield node, key
        yield from numbers(value)


@pytest.mark.parametrize("name", ["banded", "diagonal", "chevron", "low-rank", "subspace"])
def test_sizes_that_do_not_fit_are_refused(name):
    header, arrays = stored(HELD[name])
    places = len(list(numbers(header)))
    assert places >= 2
    for place in range(places):
        for other in (-1, 3, 5, 2**40):
            changed = copy.deepcopy(header)
            node, key = list(numbers(changed))[place]
            if node[key] == other:
                continue
            node[key] = other
            with pytest.raises(ValueError):
                Decoder(arrays).decode(changed)


@pytest.mark.parametrize("part", ["factor", "draw", "__class__", "__dict__", "check_stored"])
def test_no_name_from_a_file_replaces_what_a_class_does(part):
    header, arrays = stored(DiagonalStructure(3))
    header["parts"][part] = {"mapping": []}
    with pytest.raises(ValueError, match="is no part of DiagonalStructure"):
        Decoder(arrays).decode(header)


def test_sites_see_values_that_are_there():
    assert selection_matrix(np.array([0, 2, 1]), 3).shape == (3, 3)
    for places in ([0, 3], [-1, 0]):
        with pytest.raises(ValueError, match="rows must be places among 3 values"):
            selection_matrix(np.array(places), 3)
