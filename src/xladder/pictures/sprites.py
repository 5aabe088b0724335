"""The sprites of board worlds: ground, wall, items and agents, as square RGBA tiles with smooth edges.

Coordinates are fractions of a tile, so that sprites look alike at every size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

# Okabe and Ito's colours, which colour-blind readers can tell apart, and others for more agents.
AGENT_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#6F4E9C", "#50565E", "#F0E442", "#8C2F1E", "#A6C036", "#7FD6C2"),
)
ITEM_COLOURS = ("#B5489A", "#3B7D4F", "#C98A00", "#3D6FB6", "#7A5C3E", "#5E5E5E")
GROUND = ("#E8DCC2", "#E3D6B9")  # two shades, as on a chessboard
SCALE = 3  # drawn at this multiple of the size and then scaled down

Point = tuple[float, float]


class Pencil:
    """Draws on a unit square."""

    def __init__(self, side: int):
        self.side = side
        self.image = Image.new("RGBA", (side, side))
        self._draw = ImageDraw.Draw(self.image)

    def _pixels(self, *points: Point) -> list[Point]:
        return [(x * self.side, y * self.side) for x, y in points]

    def shape(self, colour: str, *points: Point) -> None:
        """Fill a polygon."""
        self._draw.polygon(self._pixels(*points), fill=colour)

    def stroke(self, colour: str, width: float, *points: Point) -> None:
        """Draw a line."""
        self._draw.line(self._pixels(*points), fill=colour, width=round(width * self.side), joint="curve")

    def disc(self, colour: str, x: float, y: float, radius: float, tall: float = 1.0) -> None:
        """Fill a circle, or an ellipse that is `tall` times as high as it is wide."""
        box = self._pixels((x - radius, y - radius * tall), (x + radius, y + radius * tall))
        self._draw.ellipse([*box[0], *box[1]], fill=colour)

    def block(self, colour: str, left: float, top: float, right: float, bottom: float, corner: float) -> None:
        """Fill a rectangle with round corners."""
        box = self._pixels((left, top), (right, bottom))
        self._draw.rounded_rectangle([*box[0], *box[1]], corner * self.side, fill=colour)

    def letters(self, colour: str, text: str, x: float, y: float, height: float) -> None:
        """Write text, centred on a point."""
        self._draw.text((x * self.side, y * self.side), text, colour, font(round(height * self.side)), anchor="mm")


@cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """A bold sans-serif font that comes with matplotlib, and so is always available."""
    import matplotlib

    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans-Bold.ttf"), size)


def text_on(colour: str) -> str:
    """White or dark text, whichever is readable on `colour`."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#1F2328" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#FFFFFF"


def wall_sprite(size: int) -> Image.Image:
    """A stone wall."""
    return painted(size, _paint_wall)


def item_sprite(size: int, name: str, index: int) -> Image.Image:
    """A gem, an apple or a bone; for any other name a disc with its first letter."""

    def paint_other(pencil: Pencil) -> None:
        colour = ITEM_COLOURS[index % len(ITEM_COLOURS)]
        pencil.disc("#3A3328", 0.5, 0.5, 0.37)
        pencil.disc(colour, 0.5, 0.5, 0.33)
        pencil.letters(text_on(colour), name[:1].upper(), 0.5, 0.5, 0.42)

    return painted(size, {"gem": _paint_gem, "food": _paint_apple, "bone": _paint_bone}.get(name, paint_other))


def agent_sprite(size: int, index: int) -> Image.Image:
    """A round figure in its own colour, with its number, counted from 1."""
    return figure_sprite(size, AGENT_COLOURS[index % len(AGENT_COLOURS)], str(index + 1))


def figure_sprite(size: int, colour: str, number: str = "") -> Image.Image:
    """A round figure with a number, or with none."""

    def paint(pencil: Pencil) -> None:
        pencil.disc("#00000038", 0.5, 0.92, 0.36, tall=0.18)  # its shadow
        pencil.block("#2B2B2B", 0.09, 0.03, 0.91, 0.94, 0.36)
        pencil.block(colour, 0.13, 0.07, 0.87, 0.90, 0.32)
        for x in (0.35, 0.65):
            pencil.disc("#FFFFFF", x, 0.29, 0.105)
            pencil.disc("#1F2328", x, 0.30, 0.055)
        pencil.letters(text_on(colour), number, 0.5, 0.64, 0.46 if len(number) == 1 else 0.36)

    return painted(size, paint)


def halo_sprite(size: int, colour: str) -> Image.Image:
    """A glow to put under an agent; pass a larger size to exceed its tile."""
    return painted(size, lambda pencil: pencil.disc(colour + "88", 0.5, 0.5, 0.49))


def painted(size: int, paint: Callable[[Pencil], None]) -> Image.Image:
    """A sprite that `paint` draws on a unit square."""
    pencil = Pencil(size * SCALE)
    paint(pencil)
    return pencil.image.resize((size, size), Image.Resampling.LANCZOS)


def _paint_wall(pencil: Pencil) -> None:
    pencil.shape("#464D57", (0, 0), (1, 0), (1, 1), (0, 1))
    for left, top, right, bottom in ((0.03, 0.04, 0.60, 0.47), (0.66, 0.04, 1.2, 0.47)):
        pencil.block("#6B7482", left, top, right, bottom, 0.07)
    for left, top, right, bottom in ((-0.2, 0.54, 0.28, 0.97), (0.34, 0.54, 0.97, 0.97)):
        pencil.block("#626B78", left, top, right, bottom, 0.07)


def _paint_gem(pencil: Pencil) -> None:
    left, right, tip = (0.08, 0.41), (0.92, 0.41), (0.5, 0.90)
    west, top, east = (0.27, 0.17), (0.5, 0.17), (0.73, 0.17)
    inner_west, inner_east = (0.34, 0.41), (0.66, 0.41)
    pencil.shape("#3FC1D4", left, west, inner_west)
    pencil.shape("#8FE8EE", west, top, inner_west)
    pencil.shape("#C9F6F7", top, inner_west, inner_east)
    pencil.shape("#6FD9E4", top, east, inner_east)
    pencil.shape("#25A3BB", east, right, inner_east)
    pencil.shape("#2AAFC6", left, inner_west, tip)
    pencil.shape("#5CD0DF", inner_west, inner_east, tip)
    pencil.shape("#14839F", inner_east, right, tip)
    pencil.stroke("#0B5468", 0.045, top, west, left, tip, right, east, top)


def _paint_apple(pencil: Pencil) -> None:
    for colour, grow in (("#6E1111", 0.035), ("#D8342C", 0.0)):
        for x in (0.37, 0.63):
            pencil.disc(colour, x, 0.57, 0.235 + grow, tall=1.22)
        pencil.disc(colour, 0.5, 0.62, 0.26 + grow, tall=1.0)
    pencil.disc("#F0776B", 0.30, 0.48, 0.065, tall=1.6)
    pencil.stroke("#5A3A1E", 0.06, (0.5, 0.36), (0.51, 0.24), (0.55, 0.13))
    pencil.shape("#4E8F3A", (0.54, 0.24), (0.63, 0.13), (0.82, 0.10), (0.75, 0.23), (0.63, 0.27))


def _paint_bone(pencil: Pencil) -> None:
    for colour, grow in (("#7A6A55", 0.035), ("#FBF7EC", 0.0)):
        pencil.stroke(colour, 0.17 + 2 * grow, (0.28, 0.72), (0.72, 0.28))
        for x, y in ((0.19, 0.68), (0.32, 0.81), (0.68, 0.19), (0.81, 0.32)):
            pencil.disc(colour, x, y, 0.115 + grow)
