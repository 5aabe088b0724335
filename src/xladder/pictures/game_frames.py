"""Renders observations as colour images: grid games, grey screens, carts and poles, and curves for everything else.

Every function takes the observations of T steps and returns images, uint8 [T, H, W, 3]. Shapes: T steps, H and W pixels
or cells, C channels, V numbers per observation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

from xladder.pictures.sprites import AGENT_COLOURS, SCALE, Pencil, Point, font

SIDE = 360  # pixels of an image's longer side, slightly fewer where cells have to be whole
NIGHT, EMPTY_CELL = "#12151D", "#1C212C"  # the background of a grid, and an empty cell
# By channel: the first, often the player, is the brightest.
CHANNEL_COLOURS = (
    "#FFD166",
    "#5BC0F8",
    "#8D99AE",
    "#EF6F4B",
    "#7BD88F",
    "#F28AB2",
    "#B794F6",
    "#2EC4B6",
    "#F4F1EA",
    "#C9A227",
)
PAPER, SHADE, EARTH, AHEAD, DARK, GREY = "#F7F4EC", "#ECE5D3", "#DDD5C2", "#C9BFA8", "#1F2328", "#6E7781"
BLUE, ORANGE, GREEN = AGENT_COLOURS[:3]
FEW_CELLS = 20  # per side: up to this size a matrix is drawn as the cells of a board, not as a screen
MOST_CURVES = 12  # that can be told apart, one above the other
LABEL, NUMBER = 34, 62  # pixels left and right of the curves
BOARDS = {("catch", 50): (10, 5), ("deepsea", 64): (8, 8), ("frozenlake", 16): (4, 4)}  # observed as a flat vector


def draw_observations(world: str, observations: np.ndarray) -> np.ndarray:
    """Render observations [T, …] by the world's name and their shape; works for any world."""
    steps, *shape = observations.shape
    drawings = {("cartpole", 4): draw_cartpole, ("acrobot", 6): draw_acrobot, ("mountaincar", 2): draw_mountain_car}
    for name, size in (*drawings, *BOARDS):
        if name in world.lower() and shape == [size]:
            if drawing := drawings.get((name, size)):
                return drawing(observations)
            return draw_minatar(observations.reshape(steps, *BOARDS[name, size], 1))
    if len(shape) == 3 and shape[2] == 3 and observations.dtype == np.uint8 and observations.max() > 1:
        return observations  # already in colour: channels of a grid are 0 or 1
    if len(shape) == 2 and max(shape) <= FEW_CELLS:
        return draw_minatar(observations[..., None])
    return {2: draw_grey, 3: draw_minatar}.get(len(shape), draw_vector)(observations)


def draw_minatar(frames: np.ndarray) -> np.ndarray:
    """Render grids [T, H, W, C] with one colour per channel; where several are on, the first is on top.

    A single grid [H, W, C] gives a single image [H, W, 3].
    """
    seen = np.asarray(frames) > 0
    cell = max(1, SIDE // max(seen.shape[-3:-1]))
    kinds = 1 + np.argmax(seen, axis=-1) % len(CHANNEL_COLOURS)
    kinds = np.where(seen.any(axis=-1), kinds, 0)  # [T, H, W], 0 for an empty cell
    tiles = np.stack([_tile(cell, colour) for colour in (EMPTY_CELL, *CHANNEL_COLOURS)])
    pictures = tiles[kinds]  # [T, H, W, cell, cell, 3]
    *times, height, width = kinds.shape
    return np.moveaxis(pictures, -3, -4).reshape(*times, height * cell, width * cell, 3)


def draw_grey(frames: np.ndarray) -> np.ndarray:
    """Render grey screens [T, H, W], enlarged. Bytes are shades; other numbers are scaled from black to white."""
    frames = np.asarray(frames)
    if frames.dtype != np.uint8:
        frames = _finite(frames)
        least, most = frames.min(), frames.max()
        frames = (255 * (frames - least) / ((most - least) or 1.0)).round().astype(np.uint8)
    times = max(1, SIDE // max(frames.shape[1:]))
    large = frames.repeat(times, axis=1).repeat(times, axis=2)
    return np.stack([large] * 3, axis=-1)


def draw_cartpole(observations: np.ndarray) -> np.ndarray:
    """Render cart and pole, [T, 4]: position, velocity, angle, angular velocity. Posts and wedge mark where it ends."""
    floor, axle, reach = 0.53, 0.45, 0.36  # the pole is longer than to scale: its angle is what matters

    def across(place: float) -> float:
        return 0.5 + place / 5.6

    def scenery(pencil: Pencil) -> None:
        pencil.stroke(GREY, 0.008, (0, floor), (1, floor))
        for place in (-2.4, 2.4):
            pencil.block(GREY, across(place) - 0.008, floor - 0.06, across(place) + 0.008, floor, 0.006)

    def paint(pencil: Pencil, observation: np.ndarray) -> None:
        x, angle = across(observation[0]), observation[2]
        ends = [(x + reach * np.sin(a), axle - reach * np.cos(a)) for a in (angle, -0.2095, 0.2095)]  # 12 degrees
        pencil.shape(SHADE, (x, axle), *ends[1:])
        pencil.block(BLUE, x - 0.08, axle, x + 0.08, floor - 0.012, 0.016)
        for wheel in (x - 0.05, x + 0.05):
            pencil.disc(DARK, wheel, floor - 0.02, 0.02)
        _draw_rod(pencil, ORANGE, 0.03, (x, axle), ends[0])
        pencil.disc(DARK, x, axle, 0.009)

    return _film(observations, scenery, paint, share=0.6)


def draw_acrobot(observations: np.ndarray) -> np.ndarray:
    """Render two links, [T, 6]: cosine and sine of both angles, and their velocities. The line is the goal."""
    middle, length = 0.5, 0.215

    def scenery(pencil: Pencil) -> None:
        for left in np.arange(0.02, 1, 0.04):
            pencil.stroke(GREEN, 0.008, (left, middle - length), (left + 0.02, middle - length))

    def paint(pencil: Pencil, observation: np.ndarray) -> None:
        first = np.arctan2(observation[1], observation[0])
        second = first + np.arctan2(observation[3], observation[2])  # relative to the first link
        elbow = (middle + length * np.sin(first), middle + length * np.cos(first))
        tip = (elbow[0] + length * np.sin(second), elbow[1] + length * np.cos(second))
        _draw_rod(pencil, BLUE, 0.045, (middle, middle), elbow)
        _draw_rod(pencil, ORANGE, 0.045, elbow, tip)
        for x, y in ((middle, middle), elbow):
            pencil.disc(DARK, x, y, 0.012)

    return _film(observations, scenery, paint)


def draw_mountain_car(observations: np.ndarray) -> np.ndarray:
    """Render a car between two hills, [T, 2]: position and velocity. The flag is the goal."""

    def ground(place: float) -> tuple[float, float]:
        return (place + 1.25) / 1.9, 0.52 - 0.15 * np.sin(3 * place)

    def scenery(pencil: Pencil) -> None:
        hill = [ground(place) for place in np.linspace(-1.3, 0.7, 200)]
        pencil.shape(EARTH, (0, 1), *hill, (1, 1))
        pencil.stroke(GREY, 0.008, *hill)
        x, y = ground(0.5)
        pencil.stroke(DARK, 0.008, (x, y), (x, y - 0.14))
        pencil.shape(GREEN, (x, y - 0.14), (x + 0.06, y - 0.115), (x, y - 0.09))

    def paint(pencil: Pencil, observation: np.ndarray) -> None:
        x, y = ground(observation[0])
        along = np.subtract(ground(observation[0] + 0.01), (x, y))
        along /= np.hypot(*along)
        up = np.array([along[1], -along[0]])

        def at(forward: float, above: float) -> tuple[float, float]:
            right, down = (x, y) + forward * along + above * up
            return float(right), float(down)

        pencil.shape(BLUE, at(-0.06, 0.02), at(-0.055, 0.055), at(0.045, 0.055), at(0.06, 0.035), at(0.06, 0.02))
        pencil.shape(BLUE, at(-0.035, 0.05), at(-0.025, 0.085), at(0.015, 0.085), at(0.03, 0.05))
        for right, down in (at(-0.035, 0.02), at(0.035, 0.02)):
            pencil.disc(DARK, right, down, 0.02)

    return _film(observations, scenery, paint, share=0.75)


def draw_vector(observations: np.ndarray) -> np.ndarray:
    """Render each number of [T, V] as a curve with its value; those that vary most if there are too many."""
    values = _finite(observations).reshape(len(observations), -1)
    chosen = np.sort(np.argsort(-values.std(axis=0), kind="stable")[:MOST_CURVES])
    row = int(np.clip(240 // len(chosen), 26, 80))
    x = LABEL + 4 + (SIDE - LABEL - NUMBER) * np.arange(len(values)) / max(1, len(values) - 1)  # [T]
    y = np.stack([row * (k + 0.5) - 0.35 * row * _centred(values[:, v]) for k, v in enumerate(chosen)], axis=1)
    size = (SIDE, row * len(chosen))
    ahead, behind = (_draw_curves(size, x, y, colours) for colours in ((AHEAD,), AGENT_COLOURS))
    for sheet in (ahead, behind):
        for k, v in enumerate(chosen):
            ImageDraw.Draw(sheet).text((10, row * (k + 0.5)), str(v), GREY, font(11), "lm")
    dots, pictures = [_dot(colour) for colour in AGENT_COLOURS], []
    for now, heights, numbers in zip(x, y, values[:, chosen], strict=True):
        picture, edge = ahead.copy(), round(now)
        picture.paste(behind.crop((0, 0, edge, size[1])))
        draw = ImageDraw.Draw(picture)
        draw.line([(edge, 0), (edge, size[1])], GREY)
        for k, (height, number) in enumerate(zip(heights, numbers, strict=True)):
            dot = dots[k % len(dots)]
            picture.paste(dot, (edge - dot.width // 2, round(height) - dot.height // 2), dot)
            text = f"{number:.3g}".replace("-", "\u2212")
            draw.text((SIDE - 8, row * (k + 0.5)), text, DARK, font(11), "rm")
        pictures.append(np.asarray(picture))
    return np.stack(pictures)


def _finite(values: np.ndarray) -> np.ndarray:
    """Replace NaN and infinity by 0."""
    return np.nan_to_num(np.asarray(values, float), posinf=0.0, neginf=0.0)


def _tile(cell: int, colour: str) -> np.ndarray:
    """A cell of a grid, uint8 [cell, cell, 3]."""
    pencil = Pencil(cell * SCALE)
    pencil.block(NIGHT, 0, 0, 1, 1, 0)
    pencil.block(colour, 0.04, 0.04, 0.96, 0.96, 0.14)
    return np.asarray(pencil.image.convert("RGB").reduce(SCALE))


def _dot(colour: str) -> Image.Image:
    pencil = Pencil(9 * SCALE)
    pencil.disc(colour, 0.5, 0.5, 0.5)
    return pencil.image.reduce(SCALE)


def _film(
    observations: np.ndarray,
    scenery: Callable[[Pencil], None],
    paint: Callable[[Pencil, np.ndarray], None],
    share: float = 1.0,
) -> np.ndarray:
    """Draw each observation on the same background, on a square of which the upper share is kept."""
    still, pictures = Pencil(SIDE * SCALE), []
    still.block(PAPER, 0, 0, 1, 1, 0)
    scenery(still)
    for observation in _finite(observations):
        pencil = Pencil(SIDE * SCALE)
        pencil.image.paste(still.image)
        paint(pencil, observation)
        kept = pencil.image.crop((0, 0, pencil.side, round(SIDE * share) * SCALE))
        pictures.append(np.asarray(kept.reduce(SCALE).convert("RGB")))
    return np.stack(pictures)


def _draw_rod(pencil: Pencil, colour: str, width: float, start: Point, end: Point) -> None:
    """Draw a straight bar with round ends."""
    along = np.subtract(end, start)
    aside = width / 2 * np.array([along[1], -along[0]]) / np.hypot(*along)
    corners = (start + aside, end + aside, end - aside, start - aside)
    pencil.shape(colour, *((float(x), float(y)) for x, y in corners))
    for x, y in (start, end):
        pencil.disc(colour, x, y, width / 2)


def _centred(values: np.ndarray) -> np.ndarray:
    """Values [T] stretched to lie between −1 and 1; 0 where they do not vary."""
    least, most = values.min(), values.max()
    return (2 * values - least - most) / ((most - least) or 1.0)


def _draw_curves(size: tuple[int, int], x: np.ndarray, y: np.ndarray, colours: tuple[str, ...]) -> Image.Image:
    """Curves over the same x [T], with heights y [T, V] in pixels, each in the next colour."""
    sheet = Image.new("RGB", (size[0] * SCALE, size[1] * SCALE), PAPER)
    draw, row = ImageDraw.Draw(sheet), sheet.height // y.shape[1]
    for k, heights in enumerate(y.T):
        if k % 2:
            draw.rectangle([0, k * row, sheet.width, (k + 1) * row - 1], SHADE)
        points = [(SCALE * a, SCALE * b) for a, b in zip(x, heights, strict=True)]
        draw.line(points, colours[k % len(colours)], 2 * SCALE, joint="curve")
    return sheet.reduce(SCALE)
