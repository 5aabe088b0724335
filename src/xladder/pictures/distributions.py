"""Figures of a learned distribution and its target: panels and a scatter plot as PNG, and an animated GIF of training.

Colours follow the square root of a probability: a linear scale would show only the highest modes, a logarithmic one
would emphasise empty regions. Shapes: H rows, W columns, N states, K distinct rewards.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from xladder.pictures.charts import BLUE, FAINT, INK, chart_style, new_figure
from xladder.pictures.sprites import font

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

COLOURS, DIFFERENCES = "viridis", "RdBu_r"  # colour maps that are safe for colour-blind readers
COORDINATES = ("coordinate 1", "coordinate 2")
HEADROOM = 1.25  # how far the colour scale may exceed the target's largest probability
ROUND_STEPS = [1, 2, 5, 10]
DASHED: Any = {"color": INK, "linewidth": 1.1, "linestyle": (0, (5, 4))}

# The animation.
FRAME_MS, LAST_MS = 160, 2500
MOST_FRAMES, MOST_BYTES = 60, 1_800_000
LEVELS, GREYS = 100, 40  # colours: of probabilities, and from black to white
DARK, GREY, PALE, PAPER = 30, 115, 228, 255  # shades: text, secondary text, lines, background
SIDE, SHORTEST, MOST_CELLS = 280, 96, 70  # of a panel: pixels of its longer side, of its shorter side, cells per side
EDGE, GAP, NARROWEST = 40, 44, 440  # pixels: left and right, between panels, the whole
ABOVE, BELOW = 98, 86  # pixels above and below the panels

# The scatter.
FEW_REWARDS = 12  # up to this many distinct rewards are drawn as columns of points
MOST_POINTS = 3000  # drawn as single points


class Other(NamedTuple):
    """A second learned distribution, which is drawn below the first."""

    grid: np.ndarray  # float [H, W]
    name: str
    caption: str


def draw_distributions(
    path: str | Path,
    target: np.ndarray,
    learned: np.ndarray,
    title: str,
    caption: str,
    labels: tuple[str, str] = COORDINATES,
    name: str = "learned",
    other: Other | None = None,
) -> None:
    """Draw target, learned distribution and their difference side by side, 1600 pixels wide.

    Args:
        path: the PNG file.
        target: float [H, W], sums to one; [1, W] for a single coordinate.
        learned: the same for what was learned.
        title: title of the figure.
        caption: text below.
        labels: names of the rows and of the columns; for a single coordinate the first is that of the columns.
        name: what was learned is called this.
        other: another learned distribution, which gets a second row.
    """
    from matplotlib.colors import Normalize, PowerNorm
    from matplotlib.ticker import MaxNLocator

    target, learned = np.asarray(target, float), np.asarray(learned, float)
    grids = [learned] if other is None else [learned, np.asarray(other.grid, float)]
    most = np.maximum.reduce(grids)
    top, furthest = _top(target, most), max(_largest(np.abs(grid - target)) for grid in grids) or 1.0  # 1 if all equal
    shared: Any = {"cmap": COLOURS, "norm": PowerNorm(0.5, 0.0, top)}
    with chart_style():
        # A panel is about 2.9 wide. This makes cells square, unless it would leave a thin strip.
        height = 2.9 * float(np.clip(target.shape[0] / target.shape[1], 0.4, 1.5))
        figure = new_figure(height=2.1 + height * len(grids) + 0.4 * (len(grids) - 1))
        panels = figure.subplots(len(grids), 3, squeeze=False)
        _draw_grid(panels[0, 0], "target", target, labels, **shared)
        around = Normalize(-furthest, furthest)
        for row, grid, called in zip(panels, grids, (name, other.name if other else ""), strict=False):
            shades = _draw_grid(row[1], called, grid, labels, **shared)
            changes = _draw_grid(row[2], "learned − target", grid - target, labels, cmap=DIFFERENCES, norm=around)
        if other is not None:
            panels[1, 0].axis("off")
            panels[1, 0].text(0.0, 0.95, _wrapped(other.caption), va="top", fontsize=10.5, color=INK)
        above = "max" if _largest(most) > top else "neither"
        bars = [
            figure.colorbar(
                shades, ax=[*panels[:, 0], *panels[:, 1]], location="bottom", aspect=56, pad=0.03, extend=above
            ),
            figure.colorbar(changes, ax=[*panels[:, 2]], location="bottom", aspect=27, pad=0.03),
        ]
        for bar, label, ticks in zip(bars, ("probability (colours by square root)", "difference"), (7, 4), strict=True):
            bar.set_label(label)
            bar.outline.set_visible(False)
            bar.ax.xaxis.set_major_locator(MaxNLocator(ticks, steps=ROUND_STEPS))
            bar.ax.xaxis.set_major_formatter(lambda value, _: _plain(value))
        figure.supxlabel(caption, x=0.008, ha="left", fontsize=9.5, color=FAINT)
        figure.suptitle(title, x=0.008, ha="left")
        figure.savefig(path)


def write_animation(
    path: str | Path,
    target: np.ndarray,
    frames: Sequence[tuple[int, np.ndarray, str]],
    title: str,
    tick: str = "iteration",
    labels: tuple[str, str] = COORDINATES,
    names: Sequence[str] = ("learned",),
    others: Sequence[tuple[np.ndarray, str]] | None = None,
) -> None:
    """Write a looping animation of a distribution being learned, beside its target.

    Frames are dropped evenly, never the first or the last, if there are more than `MOST_FRAMES` or the file would
    exceed `MOST_BYTES`.

    Args:
        path: the GIF file.
        target: float [H, W].
        frames: tick, learned distribution float [H, W] and a short label such as "TV 0.31", for each frame.
        title: title of the animation.
        tick: what a tick is called.
        labels: names of the rows and of the columns.
        names: what was learned is called this; two names if there are `others`.
        others: another learned distribution and its label for each frame, which get a panel of their own.
    """
    if not len(frames):
        raise ValueError("An animation needs at least one frame.")
    last = frames[-1][0]
    panels = [[(grid, label)] for _, grid, label in frames]
    if others is not None:
        panels = [[*mine, theirs] for mine, theirs in zip(panels, others, strict=False)]
    stage = _Stage(target, [grid for grid, _ in panels[-1]], title, labels, names)
    images = [
        stage.draw(f"{tick} {frames[i][0]:,}", frames[i][0] / max(last, 1), panels[i])
        for i in _evenly(len(panels), MOST_FRAMES)
    ]
    file = _encode(images)
    while len(file) > MOST_BYTES and len(images) > 2:
        images = [images[i] for i in _evenly(len(images), max(2, len(images) * MOST_BYTES // len(file)))]
        file = _encode(images)
    Path(path).write_bytes(file)


def draw_scatter(
    path: str | Path, log_reward: np.ndarray, log_prob: np.ndarray, log_z: float, title: str, caption: str = ""
) -> None:
    """Draw log-probability against log-reward, float [N] each, and the error relative to a perfect sampler.

    States that are never sampled (log-probability −∞) are counted, not drawn.
    """
    log_reward, log_prob = np.asarray(log_reward, float).ravel(), np.asarray(log_prob, float).ravel()
    finite = np.isfinite(log_reward) & np.isfinite(log_prob)
    if not finite.any():
        raise ValueError("A scatter needs a state with finite log-reward and log-probability, but there are none.")
    log_reward, log_prob, missing = log_reward[finite], log_prob[finite], int((~finite).sum())
    error = log_prob - (log_reward - log_z)
    levels, which = np.unique(log_reward.round(4), return_inverse=True)
    with chart_style():
        figure = new_figure(height=5.0)
        left, right = figure.subplots(1, 2, width_ratios=[1.2, 1.0])
        if len(levels) <= FEW_REWARDS:
            # On the left at their values, on the right evenly spaced.
            _draw_columns(left, levels, which, log_prob, half=0.012 * np.ptp(levels) or 0.1)
            _draw_columns(right, np.arange(len(levels)), which, error, half=0.22)
            _draw_bars(right, which, error)
            counts = zip(levels, np.bincount(which), strict=True)
            right.set_xticks(range(len(levels)), [f"{_plain(level)}\nn = {count:,}" for level, count in counts])
            note = "Points: states, or a subset of them. Bars: central 90 % and 50 %, with the median in white."
        else:
            note = _draw_cloud(left, log_reward, log_prob)
            _draw_cloud(right, log_reward, error)
        bottom, top = right.get_ylim()
        right.set_ylim(min(bottom, -0.01), max(top, 0.01))  # rounding errors must not look large
        left.axline((float(levels[0]), float(levels[0]) - log_z), slope=1, **DASHED)
        right.axhline(0, **DASHED)
        left.set(title="log-probability", xlabel="log-reward")
        right.set(title="error: log p − (log R − log Z)", xlabel="log-reward")
        left.set_title(f"correlation {_correlation(log_reward, log_prob)}", loc="right", color=BLUE)
        note = f"{caption}Dashed: a perfect sampler, log p = log R − log Z with log Z = {log_z:.3f}.\n{note}"
        if missing:
            note += f" Not drawn: {missing:,} with reward or probability 0."
        figure.supxlabel(note, x=0.008, ha="left", fontsize=9.5, color=FAINT)
        figure.suptitle(title, x=0.008, ha="left")
        figure.savefig(path)


def _draw_grid(axes: Axes, title: str, values: np.ndarray, labels: tuple[str, str], **look: Any) -> AxesImage:
    from matplotlib.ticker import MaxNLocator

    image = axes.imshow(values, origin="lower", aspect="auto", **look)
    axes.set_title(title)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(8, steps=ROUND_STEPS, integer=True))
    if len(values) == 1:
        axes.set(xlabel=labels[0], yticks=[])
    else:
        axes.set(xlabel=labels[1], ylabel=labels[0])
        axes.label_outer(remove_inner_ticks=True)
    return image


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 38))


def _largest(values: np.ndarray) -> float:
    return float(np.nanmax(values, initial=0.0))


def _top(target: np.ndarray, learned: np.ndarray) -> float:
    """The largest probability with its own colour; a spike far above the target must not darken the rest."""
    return min(max(_largest(target), _largest(learned)), HEADROOM * _largest(target)) or 1.0


def _evenly(count: int, most: int) -> np.ndarray:
    """Indices of at most `most` out of `count`, evenly spaced, including the first and the last."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(int)


class _Stage:
    """The constant parts of the animation, on which frames are drawn.

    An image is uint8 [pixels, pixels]: indices into one palette of `LEVELS` colours and, after them, `GREYS` greys.
    """

    def __init__(
        self,
        target: np.ndarray,
        last: Sequence[np.ndarray],
        title: str,
        labels: tuple[str, str],
        names: Sequence[str],
    ):
        from matplotlib import colormaps

        colours, greys = colormaps[COLOURS](np.linspace(0, 1, LEVELS))[:, :3], np.linspace(0, 1, GREYS)
        self.palette = (255 * np.concatenate([colours, np.stack([greys] * 3, axis=1)])).round().astype(np.uint8)
        cells, pooled = _pool(target)
        self.top = _top(cells, np.maximum.reduce([_pool(grid)[0] for grid in last]))
        tile = SIDE // max(cells.shape)
        self.tile = max(tile, SHORTEST // cells.shape[0]), max(tile, SHORTEST // cells.shape[1])
        height, width = cells.shape[0] * self.tile[0], cells.shape[1] * self.tile[1]
        count = 1 + len(last)
        whole = count * width + (count - 1) * GAP
        self.width = max(NARROWEST, 2 * EDGE + whole)
        self.lefts = [(self.width - whole) // 2 + panel * (width + GAP) for panel in range(count)]

        under, end = ABOVE + height, self.width - EDGE
        sheet = Image.new("L", (self.width, under + BELOW), PAPER)
        draw = ImageDraw.Draw(sheet)
        size = next((size for size in range(16, 8, -1) if font(size).getlength(title) <= end - EDGE), 8)
        draw.text((EDGE, 20), title, DARK, font(size), "lm")
        rows, columns = np.shape(target)
        for left, name in zip(self.lefts, ("target", *names), strict=True):
            size = next((size for size in range(13, 7, -1) if font(size).getlength(name) <= width + GAP - 6), 7)
            draw.text((left, ABOVE - 13), name, DARK, font(size), "lm")
            _write_line(sheet, under + 12, left, left + width, ("0", labels[rows > 1], str(columns - 1)))
        if rows > 1:
            upright = Image.new("L", (height, 20), PAPER)
            _write_line(upright, 10, 0, height, ("0", labels[0], str(rows - 1)))
            sheet.paste(upright.transpose(Image.Transpose.ROTATE_90), (self.lefts[0] - 24, ABOVE))
        means = "" if pooled == (1, 1) else f", means of {pooled[0]} × {pooled[1]} cells"
        scale = f"probability (colours by square root{means})"
        _write_line(sheet, under + 65, EDGE, end, ("0", scale, f"≥ {_plain(self.top)}"))
        self.empty = _shade(sheet)
        self.empty[under + 42 : under + 54, EDGE:end] = self._colour(self.top * np.linspace(0, 1, end - EDGE) ** 2)
        self._paint(self.empty, self.lefts[0], cells)

    def draw(self, when: str, share: float, panels: Sequence[tuple[np.ndarray, str]]) -> Image.Image:
        """The frame after `share` of the training: what was learned and its label, for each panel after the target."""
        frame, end = self.empty.copy(), self.width - EDGE
        header = Image.new("L", (self.width, 36), PAPER)
        draw = ImageDraw.Draw(header)
        draw.text((EDGE, 12), when, GREY, font(13), "lm")
        if len(panels) == 1:
            draw.text((end, 12), panels[0][1], DARK, font(13), "rm")
        else:
            for left, (_, label) in zip(self.lefts[1:], panels, strict=True):
                draw.text((left, 12), label, DARK, font(13), "lm")
        for done, shade in ((1.0, PALE), (share, GREY)):
            draw.rectangle([EDGE, 26, EDGE + done * (end - 1 - EDGE), 28], shade)
        frame[36:72] = _shade(header)
        for left, (grid, _) in zip(self.lefts[1:], panels, strict=True):
            self._paint(frame, left, _pool(grid)[0])
        image = Image.fromarray(frame)
        image.putpalette(self.palette.tobytes())
        return image

    def _colour(self, values: np.ndarray) -> np.ndarray:
        """Colour indices of probabilities; NaN is grey."""
        share = np.sqrt(np.clip(np.nan_to_num(values) / self.top, 0, 1))
        return np.where(np.isnan(values), LEVELS + GREYS // 2, np.round(share * (LEVELS - 1))).astype(np.uint8)

    def _paint(self, picture: np.ndarray, left: int, cells: np.ndarray) -> None:
        """Draw a panel into an image, with the first row of cells at the bottom."""
        tiles = self._colour(cells[::-1]).repeat(self.tile[0], axis=0).repeat(self.tile[1], axis=1)
        picture[ABOVE : ABOVE + len(tiles), left : left + tiles.shape[1]] = tiles


def _write_line(sheet: Image.Image, y: int, left: int, right: int, texts: tuple[str, str, str]) -> None:
    """Write left-aligned, centred and right-aligned text."""
    places = zip((left, (left + right) // 2, right), ("lm", "mm", "rm"), texts, strict=True)
    for x, anchor, text in places:
        ImageDraw.Draw(sheet).text((x, y), text, GREY, font(11), anchor)


def _shade(sheet: Image.Image) -> np.ndarray:
    """A grey image in the greys of the palette."""
    return (LEVELS + np.round(np.asarray(sheet) * ((GREYS - 1) / 255))).astype(np.uint8)


def _pool(grid: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """Average neighbouring cells, so that no side has more than `MOST_CELLS`; also returns the cells per average."""
    grid = np.asarray(grid, float)
    steps = tuple(-(-side // MOST_CELLS) for side in grid.shape)
    for axis, step in enumerate(steps):
        starts = np.arange(0, grid.shape[axis], step)
        sizes = np.diff(starts, append=grid.shape[axis])  # the last can be smaller
        grid = np.add.reduceat(grid, starts, axis) / np.expand_dims(sizes, 1 - axis)
    return grid, steps


def _encode(images: list[Image.Image]) -> bytes:
    file = BytesIO()
    durations = [FRAME_MS] * (len(images) - 1) + [LAST_MS]
    # All frames share one palette: optimising it would only take time.
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False)
    return file.getvalue()


def _draw_columns(axes: Axes, places: np.ndarray, which: np.ndarray, values: np.ndarray, half: float) -> None:
    """Draw the values [N] of each of K rewards as a column of points of half-width `half` at its place [K]."""
    for k, place in enumerate(places):
        column = values[which == k]
        some = column[_evenly(len(column), MOST_POINTS)]
        # Offsets by the golden ratio: more even than random ones, and reproducible.
        beside = half * (2 * (0.618034 * np.arange(len(some)) % 1) - 1)
        size, alpha = (5, 0.25) if len(some) > 300 else (8, 0.5)
        axes.plot(place + beside, some, ".", color=BLUE, alpha=alpha, markersize=size, markeredgewidth=0)


def _draw_bars(axes: Axes, which: np.ndarray, values: np.ndarray) -> None:
    """Draw quantile bars beside the columns at 0 … K − 1."""
    rewards = int(which.max()) + 1
    for k in range(rewards):
        low, lower, middle, upper, high = np.quantile(values[which == k], [0.05, 0.25, 0.5, 0.75, 0.95])
        axes.plot([k + 0.32] * 2, [low, high], color=INK, linewidth=1.5)
        axes.plot([k + 0.32] * 2, [lower, upper], color=INK, linewidth=6, solid_capstyle="butt")
        axes.plot(k + 0.32, middle, "o", color="white", markersize=3.5)
    axes.set_xlim(-0.6, rewards - 0.4)


def _draw_cloud(axes: Axes, x: np.ndarray, y: np.ndarray) -> str:
    """Draw points or, if there are too many, their density; returns a caption that says which."""
    from matplotlib.colors import LogNorm

    if len(x) <= MOST_POINTS:
        axes.plot(x, y, ".", color=BLUE, alpha=0.35, markersize=6, markeredgewidth=0)
        return "Points: states."
    axes.hexbin(x, y, gridsize=80, norm=LogNorm(vmin=0.1), cmap="Blues", mincnt=1, linewidths=0.2)
    return "Darker: more states (logarithmic)."


def _correlation(x: np.ndarray, y: np.ndarray) -> str:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return "undefined"
    return f"{np.corrcoef(x, y)[0, 1]:.4f}".replace("-", "\u2212")


def _plain(value: float) -> str:
    return f"{value:.3g}".replace("-", "\u2212")
