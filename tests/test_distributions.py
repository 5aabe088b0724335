"""Pictures of distributions: files that open in every case, with the right colours in the right places.

In an animation, the target is 98 pixels below the edge and 40 from the left, what was learned 44 to the right of it.
"""

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from xladder.pictures import distributions
from xladder.pictures.distributions import Other, draw_distributions, draw_scatter, write_animation


def noise(shape, seed=0):
    grid = np.random.default_rng(seed).random(shape)
    return grid / grid.sum()


def spikes(shape, *cells):
    grid = np.zeros(shape)
    for cell in cells:
        grid[cell] = 1 / len(cells)
    return grid


def colour(share, name="viridis"):
    """The colour of a probability that is `share` of the largest one."""
    return np.array(colormaps[name](np.sqrt(share))[:3]) * 255


@pytest.fixture
def sheet(monkeypatch):
    """The latest figure, for a look at what is in it."""
    made = {}

    def keep(height, make=distributions.new_figure):
        made["figure"] = make(height)
        return made["figure"]

    monkeypatch.setattr(distributions, "new_figure", keep)
    return made


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("target", "learned"),
    [
        (noise((8, 8)), noise((8, 8), 1)),
        (noise((1, 16)), noise((1, 16), 1)),
        (noise((2, 1000)), spikes((2, 1000), (1, 999))),
        (noise((1000, 2)), np.full((1000, 2), np.nan)),
        (noise((20, 20)), noise((20, 20))),
    ],
    ids=["square", "one coordinate", "wide", "not a number", "perfect"],
)
def test_distributions_are_a_wide_png(target, learned, tmp_path):
    draw_distributions(tmp_path / "a.png", target, learned, "a run", "TV 0.013")
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG" and image.width == 1600


def test_distributions_are_where_they_belong_and_share_a_scale(tmp_path):
    target, learned = spikes((8, 8), (0, 0), (0, 7)), spikes((8, 8), (0, 0), (0, 7), (7, 7), (6, 7))
    draw_distributions(tmp_path / "a.png", target, learned, "a run", "")
    with Image.open(tmp_path / "a.png") as image:
        pixels = np.asarray(image.convert("RGB")).astype(float)

    def found(wanted):
        """How much of the picture has this colour, and the middle of it from the left and from below, in shares."""
        y, x = np.nonzero(np.abs(pixels - wanted).max(axis=2) < 3)
        return len(x), x.mean() / 1600, 1 - y.mean() / len(pixels)

    cell = (0.29 * 1600 / 8) ** 2
    # The target has the highest colour in two cells at the bottom, what was learned half as much in four cells.
    size, x, y = found(colour(1.0))
    assert size == pytest.approx(2 * cell, rel=0.2)
    assert 0.15 < x < 0.25 and 0.25 < y < 0.4
    size, x, y = found(colour(0.5))
    assert size == pytest.approx(4 * cell, rel=0.2)
    assert 0.45 < x < 0.65 and 0.4 < y < 0.7
    # What is missing is blue and at the bottom, what should not be there is red and high up on the right.
    _, x, y = found(np.array(colormaps["RdBu_r"](0.0)[:3]) * 255)
    assert x > 0.7 and 0.25 < y < 0.4
    _, x, y = found(np.array(colormaps["RdBu_r"](1.0)[:3]) * 255)
    assert x > 0.9 and y > 0.7


def test_another_distribution_gets_a_row_of_its_own(tmp_path, sheet):
    target, worst = noise((8, 8)), spikes((8, 8), (0, 0))
    beside = Other(worst, "seed 7, the worst of 8", "seed 7, the worst of 8: over all 8^2 cells TV 0.502")
    named = "seed 5, the median of 8"
    draw_distributions(tmp_path / "a.png", target, target, "a run", "", name=named, other=beside)
    grids = [axes for axes in sheet["figure"].axes if axes.images]
    assert [axes.get_title("left") for axes in grids] == [
        "target",
        named,
        "learned − target",
        beside.name,
        "learned − target",
    ]
    np.testing.assert_array_equal(grids[3].images[0].get_array(), worst)
    assert grids[1].images[0].norm.vmax == grids[3].images[0].norm.vmax  # one scale for both
    text = " ".join(text.get_text() for axes in sheet["figure"].axes for text in axes.texts)
    assert "TV 0.502" in text.replace("\n", " ")


def test_an_animation_shows_two_seeds_beside_the_target(tmp_path):
    target = spikes((4, 4), (0, 0))
    frames = [(i, spikes((4, 4), (0, i)), f"TV {i}") for i in range(3)]
    others = [(spikes((4, 4), (3, 3)), "TV 1")] * 3
    write_animation(tmp_path / "a.gif", target, frames, "a run", names=["seed 5", "seed 7"], others=others)
    (*_, last), _ = played(tmp_path / "a.gif")
    tile, panel = 70, 280 + 44
    assert last.shape[1] == 2 * 40 + 3 * 280 + 2 * 44
    for number, (row, column) in enumerate([(0, 0), (0, 2), (3, 3)]):
        x, y = 40 + number * panel + column * tile + tile // 2, 98 + (3 - row) * tile + tile // 2
        assert np.abs(last[y, x] - colour(1.0)).max() < 3


def test_a_spike_does_not_darken_the_target(tmp_path, sheet):
    target = np.full((4, 4), 1 / 16)
    draw_distributions(tmp_path / "a.png", target, spikes((4, 4), (1, 1)), "a run", "")
    assert sheet["figure"].axes[0].images[0].norm.vmax == pytest.approx(1.25 / 16)
    draw_distributions(tmp_path / "a.png", target, target, "a run", "")
    assert sheet["figure"].axes[0].images[0].norm.vmax == pytest.approx(1 / 16)


def played(path):
    """Frames as RGB arrays, and how long each is shown."""
    frames, durations = [], []
    with Image.open(path) as image:
        assert image.format == "GIF" and image.info["loop"] == 0
        for i in range(image.n_frames):
            image.seek(i)
            durations.append(image.info["duration"])
            frames.append(np.asarray(image.convert("RGB")).astype(float))
    return frames, durations


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("count", [1, 2, 60, 61, 200])
def test_animation_keeps_first_and_last_of_many_frames(count, tmp_path):
    # Of 15 × 15 cells, the one that all the mass is in tells which frame it is.
    frames = [(10 * i, spikes((15, 15), divmod(i, 15)), f"TV {i}") for i in range(count)]
    write_animation(tmp_path / "a.gif", noise((15, 15)), frames, "a title that is rather long " * 5)
    shown, durations = played(tmp_path / "a.gif")
    assert durations == [160] * (min(count, 60) - 1) + [2500]
    found = []
    for frame in shown:
        panel = frame[98 : 98 + 270, 40 + 270 + 44 :][::-1]
        row, column = np.argwhere(np.abs(panel - colour(1.0)).max(axis=2) < 3)[0] // 18
        found.append(15 * row + column)
    assert (found[0], found[-1]) == (0, count - 1)
    assert np.ptp(np.diff(found, prepend=-1)) <= 3 and len(set(found)) == len(found)


def test_animation_has_one_scale_throughout(tmp_path):
    target = spikes((10, 10), (0, 0), (9, 9))
    first, middle, last = spikes((10, 10), (3, 4)), 0.5 * target, 1.1 * target
    middle[5, 5] = np.nan
    write_animation(tmp_path / "a.gif", target, [(1, first, "a"), (2, middle, "b"), (3, last, "c")], "a run")
    shown, _ = played(tmp_path / "a.gif")
    assert [frame.shape for frame in shown] == [(98 + 280 + 86, 2 * (40 + 280) + 44, 3)] * 3

    def pixel(frame, panel, row, column):
        return shown[frame][98 + 28 * (9 - row) + 14, 40 + 324 * panel + 28 * column + 14]

    for frame in range(3):
        # There are 100 colours: two next to each other differ by up to 4.
        np.testing.assert_allclose(pixel(frame, 0, 9, 9), colour(1 / 1.1), atol=4)
        np.testing.assert_allclose(pixel(frame, 0, 9, 0), colour(0.0), atol=4)
    np.testing.assert_allclose(pixel(0, 1, 3, 4), colour(1.0), atol=4)  # far above the scale
    np.testing.assert_allclose(pixel(1, 1, 9, 9), colour(0.5 / 1.1), atol=4)
    np.testing.assert_allclose(pixel(1, 1, 3, 4), colour(0.0), atol=4)
    np.testing.assert_allclose(pixel(1, 1, 5, 5), [131] * 3, atol=4)  # not a number: grey
    np.testing.assert_allclose(pixel(2, 1, 0, 0), colour(1.0), atol=4)


def test_animation_of_noise_stays_small(tmp_path):
    frames = [(i, noise((64, 64), i), "") for i in range(60)]
    frames[0], frames[-1] = (0, spikes((64, 64), (0, 0)), ""), (59, spikes((64, 64), (63, 63)), "")
    write_animation(tmp_path / "a.gif", noise((64, 64)), frames, "a run")
    assert (tmp_path / "a.gif").stat().st_size < 2_000_000
    shown, _ = played(tmp_path / "a.gif")
    assert 20 < len(shown) < 60
    np.testing.assert_allclose(shown[0][98 + 4 * 63 + 2, 40 + 256 + 44 + 2], colour(1.0), atol=4)
    np.testing.assert_allclose(shown[-1][98 + 2, 40 + 256 + 44 + 4 * 63 + 2], colour(1.0), atol=4)


def test_animation_of_a_large_grid_shows_means(tmp_path):
    # 15 × 15 cells become one. Of the last one, 10 × 10 are left, and its mean is over those.
    target = np.zeros((1000, 1000))
    target[990:, 990:] = target[:15, :15] = 1 / 325
    write_animation(tmp_path / "a.gif", target, [(1, target / 4, "")], "a run")
    (frame,), _ = played(tmp_path / "a.gif")
    np.testing.assert_allclose(frame[98 + 2, 40 + 4 * 66 + 2], colour(1.0), atol=4)
    np.testing.assert_allclose(frame[98 + 4 * 66 + 2, 40 + 2], colour(1.0), atol=4)
    np.testing.assert_allclose(frame[98 + 2, 40 + 4 * 65 + 2], colour(0.0), atol=4)
    np.testing.assert_allclose(frame[98 + 2, 40 + 4 * 67 + 44 + 4 * 66 + 2], colour(0.25), atol=4)


SOME = np.random.default_rng(0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("log_reward", "noise"),
    [
        (np.repeat(np.log([0.001, 0.501, 2.501]), [300, 84, 16]), 0.1),
        (np.repeat(np.log([0.001, 0.501, 2.501]), [150_000, 9_744, 256]), 0.1),
        (SOME.normal(size=1000), 0.1),
        (SOME.normal(size=200_000), 0.1),
        (np.zeros(9), 0.1),
        (np.zeros(1), 0.0),
        (SOME.normal(size=100), 0.0),
    ],
    ids=["few rewards", "few rewards of many states", "points", "many points", "one reward", "one state", "perfect"],
)
def test_scatter_is_a_small_png_that_states_the_correlation(log_reward, noise, tmp_path, sheet):
    log_z = float(np.log(np.exp(log_reward).sum()))
    log_prob = log_reward - log_z + noise * np.random.default_rng(1).normal(size=log_reward.shape)
    draw_scatter(tmp_path / "a.png", log_reward, log_prob, log_z, "a run")
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG" and image.width == 1600
    assert (tmp_path / "a.png").stat().st_size < 600_000
    left, right = sheet["figure"].axes
    stated = f"{np.corrcoef(log_reward, log_prob)[0, 1]:.4f}" if np.ptp(log_reward) else "undefined"
    assert left.get_title("right") == f"correlation {stated}"
    drawn = [line for axes in (left, right) for line in axes.lines if line.get_marker() == "."]
    assert all(len(line.get_xdata()) <= 3000 for line in drawn)
    bottom, top = right.get_ylim()
    assert bottom <= -0.01 and top >= 0.01


def test_scatter_shows_every_reward_and_counts_what_it_cannot_show(tmp_path, sheet):
    log_reward, log_prob = np.array([0.0, 0.0, 1.0, 1.0, 1.0]), np.array([-2.0, -np.inf, -1.0, -1.2, -0.8])
    draw_scatter(tmp_path / "a.png", log_reward, log_prob, 2.0, "a run")
    left, right = sheet["figure"].axes
    assert [label.get_text() for label in right.get_xticklabels()] == ["0\nn = 1", "1\nn = 3"]
    points = [sorted(line.get_ydata()) for line in right.lines if line.get_marker() == "."]
    np.testing.assert_allclose(points[0], [0.0])
    np.testing.assert_allclose(points[1], [-0.2, 0.0, 0.2], atol=1e-12)
    (line,) = [line for line in left.lines if line.get_linestyle() == "--"]
    assert line.get_slope() == 1 and line.get_xy1()[1] - line.get_xy1()[0] == -2
    assert "1 with reward or probability 0" in sheet["figure"].get_supxlabel()


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(ValueError, match="one frame"):
        write_animation(tmp_path / "a.gif", noise((2, 2)), [], "a run")
    with pytest.raises(ValueError, match="finite"):
        draw_scatter(tmp_path / "a.png", np.zeros(3), np.full(3, -np.inf), 0.0, "a run")
    assert not list(tmp_path.iterdir())
