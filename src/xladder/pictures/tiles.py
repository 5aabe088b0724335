"""The tiles of board worlds, by kind of entity: one image for what lies on a cell, layer on layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from PIL import Image

from xladder.pictures.sprites import (
    GROUND,
    Pencil,
    figure_sprite,
    item_sprite,
    painted,
    wall_sprite,
)

OTHER = "#8C959F"  # an agent in a view, where it has no number
IT = "#B3261E"
HIDDEN = ("sand",)  # the ground itself


def tile(size: int, kinds: Sequence[str], names: Sequence[str]) -> Image.Image:
    """A cell with these kinds on it, from bottom to top.

    Args:
        size: pixels of a side.
        kinds: what lies there.
        names: all kinds of the world; a kind that has no drawing of its own is a disc, coloured by its place here.
    """
    image = Image.new("RGBA", (size, size))
    for kind in dict.fromkeys(kinds):  # a wall on every layer is one wall
        if kind not in HIDDEN:
            image.alpha_composite(_kind_sprite(size, kind, names.index(kind)))
    return image


def visible(kinds: Sequence[str]) -> bool:
    """Whether there is anything to draw."""
    return any(kind not in HIDDEN for kind in kinds)


@cache
def _kind_sprite(size: int, kind: str, index: int) -> Image.Image:
    if kind in PAINTERS:
        return painted(size, PAINTERS[kind])
    if kind == "wall":
        return wall_sprite(size)
    if kind in ("agent", "not_it"):
        return figure_sprite(size, OTHER)
    return item_sprite(size, kind, index - 1)


def _fill(pencil: Pencil, colour: str) -> None:
    pencil.shape(colour, (0, 0), (1, 0), (1, 1), (0, 1))


def _paint_river(pencil: Pencil) -> None:
    _fill(pencil, "#7DB7D9")
    for y in (0.28, 0.68):
        pencil.stroke("#A9D3EA", 0.06, (0.12, y), (0.3, y - 0.08), (0.48, y), (0.66, y + 0.08), (0.86, y))


def _paint_pollution(pencil: Pencil) -> None:
    _fill(pencil, "#6F7F4F")
    for x, y, radius in ((0.3, 0.35, 0.16), (0.68, 0.3, 0.1), (0.6, 0.68, 0.19), (0.22, 0.75, 0.09)):
        pencil.disc("#4A5630", x, y, radius)
        pencil.disc("#8FA05F", x - radius / 3, y - radius / 3, radius / 4)


def _paint_tree(pencil: Pencil) -> None:
    _fill(pencil, "#A9C586")
    for x, y in ((0.2, 0.45), (0.55, 0.3), (0.75, 0.75), (0.35, 0.85)):
        pencil.stroke("#7FA35C", 0.05, (x - 0.08, y - 0.12), (x, y), (x + 0.08, y - 0.12))


def _paint_apple(pencil: Pencil) -> None:
    _paint_tree(pencil)
    pencil.disc("#6E1111", 0.5, 0.55, 0.27)
    pencil.disc("#D8342C", 0.5, 0.55, 0.235)
    pencil.disc("#F0776B", 0.41, 0.46, 0.055)
    pencil.stroke("#5A3A1E", 0.06, (0.5, 0.36), (0.54, 0.18))


def _paint_beam(colour: str) -> Callable[[Pencil], None]:
    def paint(pencil: Pencil) -> None:
        _fill(pencil, colour + "70")
        for start in (0.0, 0.5):
            pencil.shape(colour + "A0", (start, 1), (start + 0.25, 1), (start + 0.75, 0), (start + 0.5, 0))

    return paint


def _paint_it(pencil: Pencil) -> None:
    """Larger than an agent, so that it shows round the agent that stands on it."""
    pencil.block(IT, 0, 0, 1, 1, 0.2)
    pencil.block("#FFFFFF", 0.13, 0.07, 0.87, 0.90, 0.32)
    pencil.letters(IT, "it", 0.5, 0.5, 0.46)


def _paint_deck(letter: str, colour: str) -> Callable[[Pencil], None]:
    def paint(pencil: Pencil) -> None:
        pencil.block("#3A3328", 0.22, 0.10, 0.86, 0.92, 0.08)
        pencil.block(GROUND[0], 0.20, 0.08, 0.82, 0.88, 0.08)
        pencil.block("#3A3328", 0.14, 0.06, 0.76, 0.86, 0.08)
        pencil.block(colour, 0.17, 0.09, 0.73, 0.83, 0.06)
        pencil.letters("#FFFFFF", letter, 0.45, 0.46, 0.44)

    return paint


PAINTERS: dict[str, Callable[[Pencil], None]] = {
    "river": _paint_river,
    "pollution": _paint_pollution,
    "tree": _paint_tree,
    "apple": _paint_apple,
    "clean": _paint_beam("#1B9AAA"),
    "zap": _paint_beam("#D1495B"),
    "it": _paint_it,
    # Bad decks are warm, good ones cool.
    "deck_a": _paint_deck("A", "#B5489A"),
    "deck_b": _paint_deck("B", "#B3261E"),
    "deck_c": _paint_deck("C", "#3B7D4F"),
    "deck_d": _paint_deck("D", "#3D6FB6"),
}
