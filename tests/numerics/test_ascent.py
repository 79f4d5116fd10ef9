"""The one loop: stopping, warnings, monotonicity, checkpoints."""

from typing import NamedTuple

import numpy as np
import pytest

from latlin.numerics.alerts import ConvergenceWarning, MonotonicityWarning
from latlin.numerics.archive import read_archive, write_archive
from latlin.numerics.ascent import Checkpoint, Measure, Rules, ascend


class Point(NamedTuple):
    x: np.ndarray
    steps: int


def halve(point):
    x = point.x / 2
    return Point(x, point.steps + 1), Measure(-float(x @ x), float(np.abs(x).max()))


START = Point(np.array([1.0, -3.0]), 0)


def test_stops_when_objective_and_gradient_stand_still():
    result = ascend(halve, START, Rules(gradient_tol=1e-4, objective_tol=1e-3))
    assert result.converged
    assert result.gradient <= 1e-4
    assert result.n_iter == len(result.trace) == 15  # 3/2^15 < 1e-4
    assert "converged in 15 steps" in result.message


def test_a_flat_objective_with_a_large_gradient_is_not_convergence():
    def stuck(point):
        return Point(point.x, point.steps + 1), Measure(0.0, 1.0)

    with pytest.warns(ConvergenceWarning, match=r"did not converge in 5 steps.*gradient 1 .*try harder"):
        result = ascend(stuck, START, Rules(max_iter=5, remedy="try harder"))
    assert not result.converged
    assert result.n_iter == 5


def test_what_is_within_its_tolerance_is_no_reason():
    def climbing(point):
        return Point(point.x, point.steps + 1), Measure(float(point.steps), 1e-8 if point.steps else 1.0)

    message = ascend(climbing, START, Rules(max_iter=5), warn=False).message
    assert "last change of the objective 1 (tolerance 5e-09)" in message
    assert "gradient" not in message


def test_a_step_that_returns_its_own_state_ends_the_loop():
    with pytest.warns(ConvergenceWarning):
        result = ascend(lambda point: (point, Measure(1.0, 0.5)), START, Rules(max_iter=50))
    assert result.n_iter == 1


def test_a_gradient_that_is_not_a_number_is_not_convergence():
    def lost(point):
        return Point(point.x, point.steps + 1), Measure(0.0, float("nan"))

    assert not ascend(lost, START, Rules(max_iter=3), warn=False).converged


def test_idle_steps_end_early():
    def idle(point):
        return Point(point.x, point.steps + 1), Measure(1.0, 1e-5)

    result = ascend(idle, START, Rules(max_iter=1000), warn=False)
    assert not result.converged
    assert 60 <= result.n_iter <= 65


@pytest.mark.parametrize("bad", [{"gradient_tol": -1.0}, {"gradient_tol": "a"}, {"max_iter": 0}, {"max_iter": 1.5}])
def test_rules_are_checked(bad):
    with pytest.raises(ValueError, match="must be"):
        Rules(**bad)


def test_warnings_point_at_the_caller():
    with pytest.warns(ConvergenceWarning) as caught:
        ascend(halve, START, Rules(max_iter=1))
    assert caught[0].filename == __file__


def test_no_warning_when_it_is_not_wanted():
    assert not ascend(halve, START, Rules(max_iter=2), warn=False).converged


def test_a_fall_of_a_monotone_objective_is_said():
    def fall(point):
        return Point(point.x, point.steps + 1), Measure(-float(point.steps), 0.5 ** (30 * point.steps))

    with pytest.warns(MonotonicityWarning, match=r"the bound fell by 1 at step 2"):
        ascend(fall, START, Rules(monotone=True, max_iter=2), warn=False)


def test_a_non_finite_objective_is_an_error():
    with pytest.raises(ValueError, match="became nan at step 1"):
        ascend(lambda p: (p, Measure(float("nan"), 1.0)), START, Rules())


def test_resuming_from_a_checkpoint_gives_the_same_numbers(tmp_path):
    whole = ascend(halve, START, Rules())
    saved = Checkpoint(tmp_path / "fit.npz", "model A")
    ascend(halve, START, Rules(max_iter=4), checkpoint=saved, warn=False)
    resumed = ascend(halve, START, Rules(), checkpoint=saved)
    np.testing.assert_array_equal(resumed.state.x, whole.state.x)
    np.testing.assert_array_equal(resumed.trace, whole.trace)
    assert resumed.state.steps == whole.state.steps
    again = ascend(halve, START, Rules(), checkpoint=saved)
    assert again.n_iter == whole.n_iter
    assert again.converged


class Pair(NamedTuple):
    first: np.ndarray
    second: float


class Nested(NamedTuple):
    pair: Pair
    count: int


def halve_nested(state):
    pair = Pair(state.pair.first / 2, state.pair.second / 2)
    size = float(np.abs(pair.first).max()) + pair.second
    return Nested(pair, state.count + 1), Measure(-(size**2), size)


def test_states_within_states_are_kept(tmp_path):
    start = Nested(Pair(np.array([[1.0, 2.0]]), 3.0), 0)
    saved = Checkpoint(tmp_path / "fit", "m")
    ascend(halve_nested, start, Rules(max_iter=4), checkpoint=saved, warn=False)
    resumed = ascend(halve_nested, start, Rules(), checkpoint=saved).state
    expected = ascend(halve_nested, start, Rules()).state
    np.testing.assert_array_equal(resumed.pair.first, expected.pair.first)
    assert (resumed.pair.second, resumed.count) == (expected.pair.second, expected.count)


def test_a_checkpoint_in_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"checkpoint is .*there is no folder"):
        Checkpoint(tmp_path / "nowhere" / "fit", "model")


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = tmp_path / "fit.npz"
    ascend(halve, START, Rules(), checkpoint=Checkpoint(path, "model A"))
    with pytest.raises(ValueError, match="belongs to another model or engine"):
        ascend(halve, START, Rules(), checkpoint=Checkpoint(path, "model B"))


@pytest.mark.parametrize(
    "forged",
    [
        {"trace": np.zeros(0)},
        {"trace": np.zeros((2, 2))},
        {"trace": np.array(["text"])},
        {"measure": np.zeros(4)},
        {"measure": np.zeros((2, 2))},
        {"state_x": np.zeros(3)},
        {"state_x": np.zeros(1)},
        {"state_x": np.zeros(0), "before_x": np.zeros(0)},
        {"before_x": np.zeros((2, 1))},
        {"before_x": np.array(["text", "text"])},
        {"state_steps": np.zeros(1)},
    ],
    ids=lambda parts: "".join(f"{name} {array.shape}" for name, array in parts.items()),
)
def test_a_forged_checkpoint_is_refused_in_a_sentence(forged, tmp_path):
    checkpoint = Checkpoint(tmp_path / "fit.npz", "model")
    ascend(halve, START, Rules(), checkpoint=checkpoint)
    kind, header, arrays = read_archive(checkpoint.path)
    write_archive(checkpoint.path, kind, header, arrays | forged)
    with pytest.raises(ValueError, match=r"fit\.npz is not a readable latlin archive: "):
        ascend(halve, START, Rules(), checkpoint=checkpoint)


class WithHistories(NamedTuple):
    x: np.ndarray
    points: np.ndarray
    slopes: np.ndarray


def test_histories_of_a_checkpoint_are_of_one_length(tmp_path):
    def remember(now):
        points, slopes = np.vstack([now.points, now.x]), np.vstack([now.slopes, -now.x])
        return WithHistories(now.x / 2, points, slopes), Measure(-float(now.x @ now.x) / 8, float(np.abs(now.x).max()))

    checkpoint, start = Checkpoint(tmp_path / "fit.npz", "m"), WithHistories(np.ones(2), *np.zeros((2, 0, 2)))
    first = ascend(remember, start, Rules(max_iter=3), checkpoint=checkpoint, warn=False)
    again = ascend(remember, start, Rules(max_iter=5), checkpoint=checkpoint, warn=False)
    assert (len(first.state.points), len(again.state.points)) == (3, 5)
    kind, header, arrays = read_archive(checkpoint.path)
    for forged in (np.zeros((2, 2)), np.zeros((0, 2)), np.zeros((5, 1))):
        write_archive(checkpoint.path, kind, header, arrays | {"state_points": forged})
        with pytest.raises(ValueError, match=r"fit\.npz is not a readable latlin archive: .*(length|shape)"):
            ascend(remember, start, Rules(), checkpoint=checkpoint)


def test_checkpoints_are_written_while_it_runs(tmp_path):
    path = tmp_path / "fit.npz"

    def interrupted(point):
        if point.steps == 3:
            raise KeyboardInterrupt
        return halve(point)

    with pytest.raises(KeyboardInterrupt):
        ascend(interrupted, START, Rules(), checkpoint=Checkpoint(path, "m", every=0.0))
    resumed = ascend(halve, START, Rules(), checkpoint=Checkpoint(path, "m"))
    np.testing.assert_array_equal(resumed.trace, ascend(halve, START, Rules()).trace)


def test_the_progress_bar_shows_numbers(capsys):
    pytest.importorskip("tqdm")
    ascend(halve, START, Rules(gradient_tol=1e-2), label="halving", verbose=True)
    shown = capsys.readouterr().err
    assert "halving" in shown
    assert "gradient" in shown


def test_an_early_interrupt_leaves_what_was_reached_and_says_where(tmp_path):
    path = tmp_path / "fit.npz"

    def interrupted(point):
        if point.steps == 3:
            raise KeyboardInterrupt
        return halve(point)

    with pytest.raises(KeyboardInterrupt) as caught:
        ascend(interrupted, START, Rules(), label="halving", checkpoint=Checkpoint(path, "m"))
    (note,) = caught.value.__notes__
    assert note.startswith(f"halving: what 3 steps reached is in {path};")
    begun = []
    resumed = ascend(
        lambda point: halve(begun.append(point.steps) or point), START, Rules(), checkpoint=Checkpoint(path, "m")
    )
    assert begun[:2] == [2, 3]  # the last step again, to see that it is the same model
    np.testing.assert_array_equal(resumed.trace, ascend(halve, START, Rules()).trace)


def test_an_interrupt_before_the_first_step_leaves_no_checkpoint(tmp_path):
    def interrupted(point):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ascend(interrupted, START, Rules(), checkpoint=Checkpoint(tmp_path / "fit.npz", "m"))
    assert not list(tmp_path.iterdir())
