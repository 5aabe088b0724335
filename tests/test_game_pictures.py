"""Pictures of games: every state has its own, the animation is a file that opens, and curves cope with episodes.

On a sheet the picture begins 34 pixels below the edge; under it are a bar of 3 pixels and a line of 30.
"""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from xladder.pictures import curves as pictures
from xladder.pictures import game_gif
from xladder.pictures.curves import draw_curves, value_panels
from xladder.pictures.game_frames import (
    CHANNEL_COLOURS,
    EMPTY_CELL,
    draw_acrobot,
    draw_cartpole,
    draw_grey,
    draw_minatar,
    draw_mountain_car,
    draw_observations,
    draw_vector,
)
from xladder.pictures.game_gif import write_game_gif


def rgb(colour):
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


# ---- drawings ------------------------------------------------------------------------------------------------------


def angles(first, second):
    return [np.cos(first), np.sin(first), np.cos(second), np.sin(second), 0.0, 0.0]


CARTPOLE = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0.1, 0], [0, 0, -0.1, 0], [-2.4, 0, 0.2, 0]], np.float32)
ACROBOT = np.array([angles(0, 0), angles(1, 0), angles(0, 1), angles(-1, 0), angles(3, 0.1)], np.float32)
CAR = np.array([[-0.5, 0], [-1.2, 0], [0.5, 0.07], [0, 0]], np.float32)
GRIDS = np.eye(400, dtype=np.uint8)[[0, 1, 2, 3, 4, 40, 399]].reshape(-1, 10, 10, 4)
SCREENS = (np.arange(3 * 84 * 84) % 251).reshape(3, 84, 84).astype(np.uint8)
WALK = np.cumsum(np.random.default_rng(0).normal(size=(20, 5)), axis=0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("draw", "observations", "size"),
    [
        (draw_cartpole, CARTPOLE, (216, 360)),
        (draw_acrobot, ACROBOT, (360, 360)),
        (draw_mountain_car, CAR, (270, 360)),
        (draw_minatar, GRIDS, (360, 360)),
        (draw_minatar, GRIDS.astype(bool), (360, 360)),
        (draw_grey, SCREENS, (336, 336)),
        (draw_grey, np.linspace(-1, 1, 300).reshape(3, 10, 10), (360, 360)),
        (draw_vector, WALK, (240, 360)),
        (draw_vector, WALK.reshape(5, 2, 10), (312, 360)),  # 20 numbers, of which 12 are shown
        (draw_vector, np.arange(3)[:, None], (80, 360)),
    ],
)
def test_every_state_has_its_own_picture(draw, observations, size):
    drawn = draw(observations)
    assert drawn.dtype == np.uint8 and drawn.shape == (len(observations), *size, 3)
    assert len({picture.tobytes() for picture in drawn}) == len(observations)
    np.testing.assert_array_equal(draw(observations), drawn)  # and always the same


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("draw", [draw_cartpole, draw_acrobot, draw_mountain_car, draw_vector])
def test_one_step_and_what_is_not_a_number_can_be_drawn(draw):
    width = {draw_cartpole: 4, draw_acrobot: 6, draw_mountain_car: 2, draw_vector: 3}[draw]
    strange = np.full((1, width), np.nan)
    strange[0, -1] = np.inf
    assert draw(strange).shape[0] == 1


def test_cells_have_the_colour_of_their_first_channel():
    grid = np.zeros((10, 10, 11))
    for channel in range(11):
        grid[channel % 10, channel // 10 + 2, channel] = 1
    grid[5, 5, [3, 7]] = 1
    picture = draw_minatar(grid)
    assert picture.shape == (360, 360, 3)
    middle = picture[18::36, 18::36]  # [10, 10, 3], a pixel of each cell
    for channel in range(11):
        wanted = rgb(CHANNEL_COLOURS[channel % len(CHANNEL_COLOURS)])
        np.testing.assert_array_equal(middle[channel % 10, channel // 10 + 2], wanted)
    np.testing.assert_array_equal(middle[5, 5], rgb(CHANNEL_COLOURS[3]))
    np.testing.assert_array_equal(middle[9, 9], rgb(EMPTY_CELL))
    np.testing.assert_array_equal(draw_minatar(grid[None])[0], picture)
    assert len(set(CHANNEL_COLOURS)) == 10


def test_grey_screens_are_enlarged_pixel_by_pixel():
    large = draw_grey(SCREENS)
    np.testing.assert_array_equal(large[:, 1::4, 2::4, 1], SCREENS)
    np.testing.assert_array_equal(large[:, ::4, ::4], large[:, 3::4, 3::4])
    other = draw_grey(np.array([[[-2.0, 0.0], [2.0, 2.0]]]))
    assert other[0, ::180, ::180, 0].tolist() == [[0, 128], [255, 255]]


def centre(picture, colour):
    """The middle of all pixels of a colour, as shares of the width, from the left and from above."""
    y, x = np.nonzero(np.abs(picture.astype(int) - rgb(colour)).max(axis=-1) < 12)
    return np.mean(x) / picture.shape[1], np.mean(y) / picture.shape[1]


def test_cart_pole_and_car_are_where_the_state_says():
    middle, right, leaning, other, _ = draw_cartpole(CARTPOLE)
    blue, orange = "#0072B2", "#D55E00"
    assert centre(middle, blue)[0] == pytest.approx(0.5, abs=0.01)
    assert centre(right, blue)[0] == pytest.approx(0.5 + 1 / 5.6, abs=0.01)
    # Half of the pole's length, to the right where the angle is positive.
    assert centre(leaning, orange)[0] == pytest.approx(0.5 + 0.18 * np.sin(0.1), abs=0.005)
    assert centre(other, orange)[0] == pytest.approx(0.5 - 0.18 * np.sin(0.1), abs=0.005)
    hanging, right, *_, upright = draw_acrobot(ACROBOT)
    assert centre(hanging, blue) == pytest.approx((0.5, 0.5 + 0.1075), abs=0.02)
    assert centre(right, blue) == pytest.approx((0.5 + 0.1075 * np.sin(1), 0.5 + 0.1075 * np.cos(1)), abs=0.02)
    assert centre(upright, orange)[1] < 0.25
    valley, left, goal, _ = draw_mountain_car(CAR)
    assert centre(valley, blue)[1] > centre(left, blue)[1] > centre(goal, blue)[1]
    assert centre(left, blue)[0] < centre(valley, blue)[0] < centre(goal, blue)[0]


def test_too_many_numbers_are_cut_to_those_that_vary():
    values = np.zeros((30, 50))
    values[:, 7:19] = np.arange(30)[:, None]
    np.testing.assert_array_equal(draw_vector(values), draw_vector(np.where(np.arange(50) < 20, values, 1.0)))
    assert draw_vector(values).shape == (30, 12 * 26, 360, 3)


BOARD = np.eye(64, dtype=np.float32)[:3]


@pytest.mark.parametrize(
    ("world", "observations", "draw"),
    [
        ("cartpole", CARTPOLE, draw_cartpole),
        ("gym/CartPole-v1", CARTPOLE, draw_cartpole),
        ("Acrobot-v1", ACROBOT, draw_acrobot),
        ("mountaincar", CAR, draw_mountain_car),
        ("mountaincar", CARTPOLE, draw_vector),  # not the one that is known by this name
        ("minatar/breakout", GRIDS, draw_minatar),
        ("pong", GRIDS[..., :3], draw_minatar),  # three channels, but not colours
        ("atari/pong", SCREENS, draw_grey),
        ("deepsea", BOARD, lambda board: draw_minatar(board.reshape(3, 8, 8, 1))),
        ("a board", BOARD.reshape(3, 8, 8), lambda board: draw_minatar(board[..., None])),
        ("fourrooms", CARTPOLE, draw_vector),
        ("anything", WALK.reshape(20, 1, 1, 1, 5), draw_vector),
        ("in colour", draw_grey(SCREENS), lambda frames: frames),
    ],
)
def test_every_world_has_some_picture(world, observations, draw):
    np.testing.assert_array_equal(draw_observations(world, observations), draw(observations))


# ---- the animation -------------------------------------------------------------------------------------------------


def ball(steps, side=21):
    """A white pixel that wanders over a dark screen, [T, side, side, 3]; where it is tells the step."""
    frames = np.full((steps, side * side, 3), 40, np.uint8)
    frames[np.arange(steps), np.arange(steps) % (side * side)] = 255
    return frames.reshape(steps, side, side, 3)


def played(path):
    """Frames as RGB arrays, and how long each is shown."""
    frames, durations = [], []
    with Image.open(path) as image:
        assert image.format == "GIF" and image.info["loop"] == 0
        for i in range(image.n_frames):
            image.seek(i)
            durations.append(image.info["duration"])
            frames.append(np.asarray(image.convert("RGB")))
    return frames, durations


def steps_of(frames, side=21):
    """Which steps a film of `ball` shows."""
    cell = 360 // side
    left = (360 - cell * side) // 2
    found = []
    for frame in frames:
        middles = frame[34 + cell // 2 :: cell, left + cell // 2 :: cell][:side, :side, 0]
        (step,) = np.flatnonzero(middles.ravel() == 255)
        found.append(int(step))
    return found


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("steps", "seconds", "every", "milliseconds"),
    [
        (1, 0.06, 1, 60),
        (2, 0.06, 1, 60),
        (40, 0.1, 1, 100),
        (42, 0.001, 2, 20),
        (95, 1.0, 4, 1000),
        (3, 99.0, 3, 99000),
    ],
)
def test_animation_shows_every_kth_step_and_holds_the_last(steps, seconds, every, milliseconds, tmp_path, monkeypatch):
    monkeypatch.setattr(game_gif, "MOST_FRAMES", 40)
    rewards = np.zeros(steps)
    write_game_gif(tmp_path / "a.gif", ball(steps), rewards, "a title that is rather long " * 3, seconds)
    frames, durations = played(tmp_path / "a.gif")
    shown = sorted({*range(0, steps, every), steps - 1})
    assert steps_of(frames) == shown
    assert durations == [milliseconds] * (len(shown) - 1) + [1500]
    assert sum(durations) <= 30_000 or len(shown) == 2
    cell = 360 // 21
    assert {*np.unique(frames[-1][34:-33, 2:-2])} == {40, 255}  # nothing is blurred
    assert {frame.shape for frame in frames} == {(34 + 21 * cell + 33, 360, 3)}


@pytest.mark.slow
def test_animation_stays_small(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (30, 20, 20, 3)).astype(np.uint8)
    write_game_gif(tmp_path / "a.gif", noise, np.zeros(30), "noise")
    large = (tmp_path / "a.gif").stat().st_size
    monkeypatch.setattr(game_gif, "MOST_BYTES", large // 2)
    write_game_gif(tmp_path / "a.gif", noise, np.zeros(30), "noise")
    frames, durations = played(tmp_path / "a.gif")
    assert large // 5 < (tmp_path / "a.gif").stat().st_size <= large // 2
    assert 6 < len(frames) < 16 and durations[-1] == 1500
    monkeypatch.setattr(game_gif, "MOST_BYTES", 1)  # cannot be: the first and the last step remain
    write_game_gif(tmp_path / "a.gif", ball(9), np.zeros(9), "a run")
    assert steps_of(played(tmp_path / "a.gif")[0]) == [0, 8]


def test_colours_are_kept(tmp_path):
    # Greys between which Pillow's own search would not tell the difference, and the ten colours of a grid.
    shades = draw_grey(np.tile(np.arange(84, dtype=np.uint8) + 60, (2, 84, 1)))
    write_game_gif(tmp_path / "a.gif", shades, np.zeros(2), "")
    np.testing.assert_array_equal(played(tmp_path / "a.gif")[0][1][34:370, 12:348], shades[1])
    grid = np.tile(np.eye(10, dtype=np.uint8)[:, None], (2, 1, 10, 1))
    write_game_gif(tmp_path / "b.gif", grid, np.zeros(2), "", draw=draw_minatar)
    cells = played(tmp_path / "b.gif")[0][1][34 + 18 : 34 + 360 : 36, 18::36]
    np.testing.assert_array_equal(cells, draw_minatar(grid[1])[18::36, 18::36])


def test_only_steps_that_are_shown_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(game_gif, "MOST_FRAMES", 40)
    asked = []

    def draw(observations):
        asked.extend(observations.tolist())
        return ball(79)[observations]

    write_game_gif(tmp_path / "a.gif", np.arange(79), np.zeros(79), "a run", draw=draw)
    assert asked == [*range(0, 79, 2)]  # among them the last
    assert steps_of(played(tmp_path / "a.gif")[0]) == asked


def written(monkeypatch, tmp_path, rewards, **how):
    """Step, steps, score and what was earned, as written under each picture."""
    said = []
    draw = game_gif._Stage.draw

    def keep(self, picture, *caption):
        said.append(caption)
        return draw(self, picture, *caption)

    monkeypatch.setattr(game_gif._Stage, "draw", keep)
    write_game_gif(tmp_path / "a.gif", ball(len(rewards)), np.array(rewards), "a run", **how)
    return said


def test_captions_count_steps_and_points(monkeypatch, tmp_path):
    rewards = [0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0]
    # Half a second is two pictures: so long what was earned is shown.
    said = written(monkeypatch, tmp_path, rewards, seconds_per_frame=0.25)
    assert [caption[:2] for caption in said] == [(step, 10) for step in range(1, 11)]
    assert [caption[2] for caption in said] == [0, 0, 4, 4, 4, 4, 4, 3, 3, 3]
    assert [caption[3] for caption in said] == [0, 0, 4, 4, 0, 0, 0, -1, -1, 0]


def test_captions_count_what_was_earned_between_pictures(monkeypatch, tmp_path):
    rewards = np.zeros(80)
    rewards[[21, 23, 60]] = 7, 3, -10
    monkeypatch.setattr(game_gif, "FLASH_MS", 60)
    monkeypatch.setattr(game_gif, "MOST_FRAMES", 40)
    said = written(monkeypatch, tmp_path, rewards)
    earned = {caption[0]: caption[3] for caption in said if caption[3]}
    assert earned == {23: 7, 25: 3, 61: -10}  # every second step is shown, counted from 1
    assert sum(earned.values()) == said[-1][2] == 0


def test_rewards_in_every_step_do_not_flash(monkeypatch, tmp_path):
    said = written(monkeypatch, tmp_path, [1.0] * 10)
    assert [caption[2] for caption in said] == [*range(1, 11)]
    assert not any(caption[3] for caption in said)


@pytest.mark.parametrize(
    ("value", "sign", "text"),
    [(41195.0, "", "41,195"), (-21.0, "", "−21"), (0.125, "+", "+0.12"), (-0.0, "", "0"), (10.0, "+", "+10")],
)
def test_points_in_writing(value, sign, text):
    assert game_gif._number(value, sign) == text


def test_score_is_written_in_its_colours(tmp_path):
    # The flash is in none of the sheets that the other colours are taken from.
    rewards = np.zeros(100)
    rewards[[21, 71]] = 5, -5
    write_game_gif(tmp_path / "a.gif", ball(100), rewards, "a run")
    frames, _ = played(tmp_path / "a.gif")
    below = [frame[-30:].astype(int) for frame in frames]

    def has(sheet, colour):
        return bool((np.abs(sheet - rgb(colour)).max(axis=-1) < 8).any())

    assert [has(below[step], game_gif.GAIN) for step in (20, 21, 28, 29, 71)] == [False, True, True, False, False]
    assert [has(below[step], game_gif.LOSS) for step in (21, 70, 71, 79)] == [False, False, True, False]


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [(210, 160, (420, 320)), (96, 96, (288, 288)), (100, 500, (100, 500)), (400, 960, (267, 640))],
)
def test_small_pictures_grow_by_whole_pixels_and_large_ones_shrink(height, width, size, tmp_path):
    write_game_gif(tmp_path / "a.gif", np.zeros((2, height, width, 3), np.uint8), np.zeros(2), "a run")
    dark = (played(tmp_path / "a.gif")[0][0] == 0).all(axis=-1)
    rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
    assert (np.ptp(rows) + 1, np.ptp(columns) + 1) == size


def test_what_cannot_be_shown_is_said(tmp_path):
    with pytest.raises(ValueError, match="at least one step"):
        write_game_gif(tmp_path / "a.gif", ball(0), np.zeros(0), "a run")
    with pytest.raises(ValueError, match="4 steps came with rewards of shape \\(3,\\)"):
        write_game_gif(tmp_path / "a.gif", ball(4), np.zeros(3), "a run")
    assert not list(tmp_path.iterdir())


# ---- the curves ----------------------------------------------------------------------------------------------------


def made_up(seeds, ticks, share):
    """A run in which an episode ends in this share of the ticks."""
    rng = np.random.default_rng(0)
    returns = np.linspace(0, 100, ticks) + rng.normal(0, 5, (seeds, ticks))
    returns[rng.random((seeds, ticks)) > share] = np.nan
    rare = np.full((seeds, ticks), np.nan)
    rare[:, ::50] = 60.0
    loss = np.exp(rng.normal(size=(seeds, ticks)))
    epsilon = np.broadcast_to(np.linspace(1, 0.01, ticks), (seeds, ticks))
    return {"return": returns, "length": 2 * returns, "eval_return": rare, "loss": loss, "epsilon": epsilon}


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """`drawn(columns, panels)`: the axes of the curves by title."""
    sheets = []

    def keep(height, make=pictures.new_figure):
        sheets.append(make(height))
        return sheets[-1]

    monkeypatch.setattr(pictures, "new_figure", keep)

    def draw(columns, panels):
        draw_curves(tmp_path / "curves.png", columns, "a run", "tick", panels, {"random play": 1.7})
        return {axes.get_title("left"): axes for axes in sheets[-1].axes}

    return draw


GREEDY = "return of the greedy policy (periodic evaluation)"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("evaluated", [True, False])
def test_panels_of_a_value_learner(evaluated, drawn):
    shown = drawn(made_up(1, 200, 0.2), value_panels(evaluated))
    wide = ["return per episode", *[GREEDY] * evaluated]
    assert [*shown] == [*wide, "loss", "ε (random actions)", "steps per episode"]
    assert [title for title, axes in shown.items() if axes.get_position().width > 0.8] == wide


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("seeds", [1, 3])
def test_curves_cope_with_ticks_in_which_no_episode_ended(seeds, share, drawn):
    columns = made_up(seeds, 1000, share)
    axes = drawn(columns, value_panels(True))["return per episode"]
    if share:
        line = axes.lines[-2 if seeds == 1 else 0]  # the last is the reference; several seeds follow their mean
        at = np.flatnonzero(np.isfinite(columns["return"]).any(axis=0))
        np.testing.assert_array_equal(line.get_xdata(), at + 1)
        assert np.isfinite(line.get_ydata()).all()


def test_seeds_are_averaged_although_their_episodes_end_in_different_ticks(drawn):
    returns = np.full((2, 1000), np.nan)
    returns[0, ::6], returns[1, 3::6] = 10.0, 30.0
    axes = drawn({"return": returns}, value_panels(False))["return per episode"]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 20.0)
    # A seed that ended early is not carried on for ever: 20 ticks are the window of the mean.
    returns[1, 500:] = np.nan
    line = drawn({"return": returns}, value_panels(False))["return per episode"].lines[0]
    last = np.flatnonzero(np.isfinite(returns[1]))[-1] + 1
    inside = line.get_xdata() <= last + 20
    np.testing.assert_allclose(line.get_ydata()[inside], 20.0)
    np.testing.assert_allclose(line.get_ydata()[~inside], 10.0)
    assert 0 < np.sum(~inside) < len(inside)


def test_importing_brings_neither_jax_nor_matplotlib():
    code = "import sys, xladder.pictures.game_gif, xladder.pictures.game_frames; "
    code += "print({'jax', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
