"""Pictures and replays are files that open, in the cases a run can produce; intervals are the textbook's numbers."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from xladder import report
from xladder.core.statistics import last_tenth, mean_and_interval, moving_mean, t_quantile
from xladder.families.multi_agent.treasurehunt_presets import WorldConfig
from xladder.pictures import curves as pictures
from xladder.pictures import replay_gif
from xladder.pictures.curves import Panel, board_panels, draw_bars, draw_curves, flow_panels
from xladder.pictures.replay_gif import write_gif


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (4, 2.7764), (10, 2.2281), (11, 2.2010), (15, 2.1314), (30, 2.0423), (120, 1.9799)],
)
def test_quantiles_of_t_are_those_in_the_tables(freedom, expected):
    assert t_quantile(freedom) == pytest.approx(expected, abs=1e-4)


def test_interval_by_hand():
    # 1, 2, 3: mean 2, variance (1 + 0 + 1) / 2 = 1, standard error 1 / √3, t(2) = 4.302653.
    mean, half_width = mean_and_interval(np.array([1.0, 2.0, 3.0]))
    assert mean == 2.0
    assert half_width == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)


def test_interval_leaves_out_what_was_not_measured():
    values = np.array([[1.0, np.nan, 5.0, np.nan], [3.0, 4.0, 5.0, np.nan]])
    mean, half_width = mean_and_interval(values)
    np.testing.assert_array_equal(mean, [2.0, 4.0, 5.0, np.nan])
    # 1, 3: variance 2, standard error 1, t(1) = 12.706205. One value alone has no interval.
    np.testing.assert_allclose(half_width, [12.706205, np.nan, 0.0, np.nan])
    assert mean_and_interval(values, axis=1)[0].tolist() == [3.0, 4.0]


def test_moving_mean_shrinks_at_the_ends_and_keeps_gaps():
    values = np.array([[np.nan, 1.0, 2.0, 6.0, 7.0]])
    np.testing.assert_allclose(moving_mean(values, 3), [[np.nan, 1.5, 3.0, 5.0, 6.5]])
    np.testing.assert_array_equal(moving_mean(values, 1), values)


def test_last_tenth_by_hand():
    # Of 20 ticks the last 2: 18.5 for the first seed, 28.5 for the second; t(1) · 5 is the half width.
    mean, half_width = last_tenth(np.arange(20.0) + np.array([[0.0], [10.0]]))
    assert mean == 23.5
    assert half_width == pytest.approx(12.706205 * 5)


def made_up(seeds, ticks):
    rng = np.random.default_rng(0)
    grow = np.linspace(0.0, 1.0, ticks)
    loss = np.exp(rng.normal(size=(seeds, ticks)) - grow)
    loss[:, : ticks // 5] = np.nan
    items = {name: rng.poisson(2 + 5 * grow, (seeds, ticks)) for name in ("gem", "bone", "food")}
    epsilon = np.broadcast_to(0.99 ** np.arange(ticks), (seeds, ticks))
    return {"return": rng.normal(100 * grow, 20, (seeds, ticks)), "loss": loss, "epsilon": epsilon, **items}


def made_up_flows(seeds, ticks, every):
    rng = np.random.default_rng(0)
    fall = np.exp(-5 * np.linspace(0.0, 1.0, ticks)) * np.exp(rng.normal(0, 0.1, (seeds, ticks)))
    rare = np.full((seeds, ticks), np.nan)
    rare[:, ::every] = fall[:, ::every]
    return {"tv": rare, "loss": 60 * fall**2, "logz_error": 8 * rare, "length": 9 + rng.random((seeds, ticks))}


HUNT, FLOW = board_panels(("gem", "bone", "food"), "items collected"), flow_panels()
ITEMS = [f"thing_{i}" for i in range(20)]


def opened(path):
    with Image.open(path) as image:
        image.load()
    return image


CURVES = {
    "one seed": made_up(1, 200),
    "several seeds": made_up(3, 100),
    "one tick": made_up(1, 1),
    "one tick of two seeds": made_up(2, 1),
    "no loss yet": {**made_up(2, 30), "loss": np.full((2, 30), np.nan)},
    "negative loss": {**made_up(2, 30), "loss": np.full((2, 30), -1.0)},
    "infinite loss": {**made_up(1, 30), "loss": np.full((1, 30), np.inf)},
    "returns that never change": {"return": np.zeros((2, 30))},
    "without returns": {"loss": made_up(2, 30)["loss"]},
    "columns it does not know": {**made_up(1, 30), "colour": np.zeros((1, 30))},
}


FLOWS = {
    "flows": made_up_flows(1, 200, 20),
    "flows of several seeds": made_up_flows(3, 300, 5),
    "flows that fit at once": {"tv": np.zeros((2, 30)), "logz_error": np.zeros((2, 30))},
    "flows measured once": made_up_flows(2, 30, 100),
    "flows never measured": {"tv": np.full((1, 30), np.nan)},
}
CASES = [(name, columns, HUNT) for name, columns in CURVES.items()]
CASES += [(name, columns, FLOW) for name, columns in FLOWS.items()]
CASES += [
    (
        "more items than can be told apart",
        {name: np.ones((2, 9)) for name in ITEMS},
        board_panels(ITEMS, "items collected"),
    ),
    ("one item", {"ruby": np.ones((2, 9))}, board_panels(["ruby"], "ruby collected")),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("columns", "panels"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_curves_are_a_wide_png(columns, panels, tmp_path):
    draw_curves(tmp_path / "curves.png", columns, "a run", "epoch", panels, {"random play": 16.0, "far away": -500.0})
    image = opened(tmp_path / "curves.png")
    assert image.format == "PNG" and image.width == 1600


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """`drawn(columns, panels)`: the axes of the curves by title."""
    sheets = []

    def keep(height, make=pictures.new_figure):
        sheets.append(make(height))
        return sheets[-1]

    monkeypatch.setattr(pictures, "new_figure", keep)

    def draw(columns, panels, references=None):
        draw_curves(tmp_path / "curves.png", columns, "a run", "epoch", panels, references)
        return {axes.get_title("left"): axes for axes in sheets[-1].axes}

    return draw


def test_curves_have_the_panels_that_were_asked_for(drawn):
    assert [*drawn(made_up(1, 30), HUNT)] == [
        "return per epoch",
        "items collected per epoch",
        "loss",
        "ε (random actions)",
    ]
    flows = drawn(made_up_flows(1, 30, 5), FLOW)
    assert [*flows] == [panel.title for panel in FLOW]
    assert [axes.get_position().width > 0.8 for axes in flows.values()] == [True, False, False, False]


def test_rare_measurements_are_joined_to_a_line_as_they_are(drawn):
    tv = np.full((2, 1000), np.nan)
    tv[:, [0, 500, 999]] = [[1.0, 0.1, 0.02], [0.8, 0.3, 0.04]]
    (axes,) = drawn({"tv": tv}, FLOW, {"uniform": 0.7}).values()
    line = axes.lines[0]
    np.testing.assert_array_equal(line.get_xdata(), [1, 501, 1000])
    np.testing.assert_allclose(line.get_ydata(), [0.9, 0.2, 0.03])
    assert line.get_marker() == "o"
    assert axes.get_title("right") == "last tenth: 0.0200, 0.0400"  # of three measurements it is the last
    assert axes.lines[3].get_ydata() == [0.7, 0.7]


@pytest.mark.parametrize(("seeds", "lines", "bands"), [(1, 1, 0), (2, 3, 0), (3, 4, 0), (4, 1, 1)])
def test_few_seeds_are_drawn_one_by_one_and_more_as_a_band(seeds, lines, bands, drawn):
    values = np.arange(seeds)[:, None] + np.linspace(1.0, 2.0, 10)
    (axes,) = drawn({"a": values}, [Panel(("a",), "a", smooth=False)]).values()
    assert (len(axes.lines), len(axes.collections)) == (lines, bands)
    note = axes.figure.get_supxlabel()
    assert ("Thin" in note) == (seeds in (2, 3)) and ("Bands" in note) == (seeds == 4)
    for seed, line in zip(range(seeds), axes.lines[1:], strict=False):
        np.testing.assert_allclose(line.get_ydata(), values[seed])


def test_axes_are_logarithmic_where_it_helps(drawn):
    near, far, zero, negative = [1.0, 2.9, 2.0], [1.0, 3.1, 2.0], [0.0, 1.0, 3.1], [-1.0, 9.0, 8.0]
    columns = {"near": near, "far": far, "zero": zero, "negative": negative}
    panels = [Panel((name,), name, logarithmic=True) for name in columns]
    shown = drawn(columns, [*panels, Panel(("far",), "linear")])
    scales = {name: axes.get_yscale() for name, axes in shown.items()}
    assert scales == {"near": "linear", "far": "log", "zero": "log", "negative": "linear", "linear": "linear"}


def test_long_curves_are_thinned_but_keep_ends_and_spikes(drawn):
    values = np.zeros((3, 62_500))
    values[:, [0, -1]], values[:, 31_234], values[:, 50_001] = 0.5, 9.0, -7.0
    shown = drawn({"a": values}, [Panel(("a",), "exact", smooth=False), Panel(("a",), "smooth")])
    for axes in shown.values():
        x = axes.lines[0].get_xdata()
        assert len(x) <= 3002 and (x[0], x[-1]) == (1, 62_500)
    exact = dict(zip(shown["exact"].lines[0].get_xdata(), shown["exact"].lines[0].get_ydata(), strict=True))
    assert (exact[1], exact[31_235], exact[50_002], exact[62_500]) == (0.5, 9.0, -7.0, 0.5)
    # The moving mean runs over 1250 ticks.
    assert max(shown["smooth"].lines[0].get_ydata()) == pytest.approx(9 / 1250)


def test_one_seed_is_shown_as_measured_behind_its_mean(drawn):
    values = np.arange(100.0)[None] % 2
    (axes,) = drawn({"a": values}, [Panel(("a",), "a")]).values()
    faint, mean = axes.lines
    np.testing.assert_array_equal(faint.get_ydata(), values[0])
    np.testing.assert_allclose(mean.get_ydata()[:-1], 0.5)  # over two ticks, one at the end
    assert not axes.collections  # no band


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(ValueError, match="only \\['colour'\\]"):
        draw_curves(tmp_path / "curves.png", {"colour": np.zeros((1, 3))}, "a run", "epoch", HUNT)
    with pytest.raises(ValueError, match="one row"):
        draw_bars(tmp_path / "bars.png", [], "times")
    with pytest.raises(ValueError, match="one turn"):
        write_gif(
            tmp_path / "a.gif",
            WorldConfig().replay(Walked(np.zeros((0, 14 * 14)), np.zeros((0, 1)))),
            np.zeros((0, 1)),
            "",
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "rows",
    [
        [{"rung": "fused", "seconds_per_iteration": 0.003, "speedup": None}],
        [{"rung": "fused", "seconds_per_step": 2e-6}],
        [
            {"rung": "torch", "seconds_per_epoch": 0.4, "speedup": 1.0},
            {"rung": "fused", "seconds_per_epoch": 4e-5, "speedup": 1e4},
        ],
        [{"rung": f"rung {i}", "seconds_per_epoch": 1 + i, "speedup": 1 / (1 + i)} for i in range(7)],
    ],
    ids=["one row", "no speed-up", "far apart", "many"],
)
def test_bars_are_a_wide_png(rows, tmp_path):
    draw_bars(tmp_path / "bars.png", rows, "time per epoch")
    image = opened(tmp_path / "bars.png")
    assert image.format == "PNG" and image.width == 1600


class Walked(NamedTuple):
    """The states of an epoch."""

    board: np.ndarray
    positions: np.ndarray


def walk(world, turns, seed=0):
    """Boards, rewards and positions of agents that swap items and places at random."""
    rng = np.random.default_rng(seed)
    shape, edge = (world.height + 2 * world.radius, world.width + 2 * world.radius), world.radius + 1
    empty = np.ones(shape, np.int8)
    empty[edge:-edge, edge:-edge] = 0
    inside = np.flatnonzero(empty == 0)
    boards = np.tile(empty.ravel(), (turns, 1))
    boards[:, inside] = rng.choice([0, 0, 0, *range(2, 2 + len(world.item_names))], (turns, len(inside)))
    positions = np.stack([rng.choice(inside, world.num_agents, replace=False) for _ in range(turns)])
    np.put_along_axis(boards, positions, np.int8(2 + len(world.item_names)), axis=1)
    return boards, rng.choice([0.0, 0.0, 10.0, -1.0], (turns, world.num_agents)), positions


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "world",
    [
        WorldConfig(),
        WorldConfig(height=21, width=21, num_agents=13),
        WorldConfig(height=3, width=3, radius=0, num_agents=1, item_names=("ruby",), item_values=(-0.125,)),
        WorldConfig(height=4, width=9, radius=0, item_names=tuple("abcdefgh"), item_values=(1.5,) * 8),
    ],
    ids=["default", "large", "smallest", "other items"],
)
@pytest.mark.parametrize("turns", [1, 12])
def test_replay_has_a_frame_per_turn(world, turns, tmp_path):
    boards, rewards, positions = walk(world, turns)
    replay = world.replay(Walked(boards, positions))
    write_gif(tmp_path / "a.gif", replay, rewards, "a title that is rather long " * 3)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.format == "GIF"
        assert image.n_frames == turns
        assert image.width <= 640
        assert image.info["loop"] == 0
        durations = []
        for turn in range(turns):
            image.seek(turn)
            image.load()
            durations.append(image.info["duration"])
    assert durations == [160] * (turns - 1) + [1500]


@pytest.mark.slow
def test_replay_shows_each_turn_and_stays_small(tmp_path):
    world = WorldConfig()
    boards, rewards, positions = walk(world, 50)
    # What a run looks like: most cells stay as they were.
    boards[:, :] = boards[0]
    boards[boards == 5] = 0
    write_gif(tmp_path / "a.gif", world.replay(Walked(boards, positions)), rewards, "a run")
    assert (tmp_path / "a.gif").stat().st_size < 700_000
    with Image.open(tmp_path / "a.gif") as image:
        for turn in (0, 25, 49):
            image.seek(turn)
            pixels = image.convert("RGB")
            for agent, position in enumerate(positions[turn]):
                row, column = divmod(int(position), world.width + 2 * world.radius)
                # Low on the left of its body, clear of eyes and number, an agent shows nothing but its colour.
                at = (40 * (column - world.radius) + 9, 34 + 40 * (row - world.radius) + 22)
                colour = replay_gif.AGENT_COLOURS[agent]
                wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
                np.testing.assert_allclose(pixels.getpixel(at), wanted, atol=24)


@pytest.mark.parametrize(("agents", "line"), [(1, 1), (2, 1), (5, 2), (6, 2), (8, 3)])
def test_replay_shows_all_prices_below_the_board_and_clear_of_the_scores(agents, line):
    decks = tuple(f"deck_{letter}" for letter in "abcd")
    values = (-0.15, -0.15, 0.35, 0.35)
    world = WorldConfig(width=11, num_agents=agents, wall_value=0.0, item_names=decks, item_values=values)
    boards, _, positions = walk(world, 1)
    stage = replay_gif._Stage(world.replay(Walked(boards, positions)), "a run")
    few = replace(world, item_names=("gem", "bone"), item_values=(10.0, -10.0))
    boards[boards > 3] = 0
    beside_the_return = replay_gif._Stage(few.replay(Walked(boards, positions)), "a run")
    assert stage.price_line == line and beside_the_return.price_line == 0
    top = stage.under + 30 * line
    pixels = np.asarray(stage.empty.convert("RGB"))[top : top + 30]
    taken = [x for x in range(stage.width) if (pixels[:, x] != 255).any()]
    on_line = max(0, agents - (line - 1) * stage.scores_per_row)  # scores beside the prices
    assert min(taken) >= 12 + on_line * 76 and max(taken) < stage.width
    for cell in stage.replay.legend:
        icon = Image.new("RGBA", (20, 20), "white")
        icon.alpha_composite(stage.replay.sprite(20, cell))
        wanted = np.asarray(icon.convert("RGB"))
        assert any((pixels[6:26, x : x + 20] == wanted).all() for x in range(stage.width - 20)), cell.name


def test_events_have_the_same_colours_in_pictures_and_on_the_page():
    page = (Path(report.__file__).parent / "static" / "page.js").read_text()
    palette = re.findall(r"#\w{6}", re.search(r"const LIGHT = .*", page)[0])
    indices = dict(re.findall(r"(\w+): (\d)", re.search(r"const ITEMS = .*", page)[0]))
    assert set(indices) == set(pictures.ITEM_COLOURS)
    for name, index in indices.items():
        if name not in ("bone", "zapped"):  # greys, which differ a little
            assert palette[int(index)] == pictures.ITEM_COLOURS[name], name


def test_importing_brings_neither_jax_nor_matplotlib():
    modules = "xladder.pictures.curves, xladder.pictures.replay_gif, xladder.pictures.distributions"
    code = f"import sys, {modules}; print({{'jax', 'matplotlib'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
