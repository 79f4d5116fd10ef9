"""Memory that is used again is memory that nobody holds."""

import threading

import numpy as np

from latlin.numerics.arrays import LARGE, empty_array, reuse_memory


def test_an_array_or_a_view_of_it_that_is_held_keeps_its_numbers():
    with reuse_memory():
        first = empty_array(2, LARGE)
        first[:] = 1.0
        part = first[1, ::7]
        del first
        others = [empty_array(2, LARGE) for _ in range(3)]
        for other in others:
            other[:] = 2.0
        np.testing.assert_array_equal(part, 1.0)
        place = part.base.ctypes.data
        del part, other, others
        assert place in {empty_array(2, LARGE).ctypes.data for _ in range(4)}


def test_memory_is_used_again_for_hardly_smaller_arrays_only():
    with reuse_memory():
        place = empty_array(2 * LARGE).ctypes.data
        assert empty_array(2 * LARGE - 1).ctypes.data == place
        assert empty_array(LARGE).ctypes.data != place


def test_outside_and_in_other_threads_every_array_is_new():
    found = []
    with reuse_memory():
        place = empty_array(LARGE).ctypes.data
        thread = threading.Thread(target=lambda: found.append(empty_array(LARGE)))
        thread.start()
        thread.join()
        assert found[0].ctypes.data != place
        assert found[0].base is None
    assert empty_array(LARGE).base is None


def test_arrays_outlive_the_block():
    with reuse_memory():
        with reuse_memory():
            kept = empty_array(LARGE)
            kept[:] = 3.0
        other = empty_array(LARGE)
        other[:] = 4.0
    np.testing.assert_array_equal(kept, 3.0)
