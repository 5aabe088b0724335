"""Scenes: what a trained agent or sampler does, as JSON-ready data that a page can play.

There are three kinds: a board on which agents move, a film of frames, and maps of a distribution over time. Families
make them (`Family.scenes`); the page draws them without knowing the family. Arrays are compressed: see `pack`.

Shapes: T turns or steps, K of them shown, N agents, A actions, H rows, W columns.
"""

from __future__ import annotations

import base64
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

LETTERS = {"|u1": "uint8", "<u2": "uint16", "<i2": "int16", "<f4": "float32"}  # dtypes that the page can read
FILM_BYTES = 700_000  # of a film, compressed
FILM_FRAMES = 500
LARGEST_MAP = 64  # cells per side; larger maps are summed over blocks
MOST_MAPS = 60
MOST_COLOURS = 256  # of a film: a pixel is one byte


class Packed(TypedDict):
    """An array as text: little-endian, deflated, in base64."""

    dtype: str
    shape: list[int]
    data: str


class Actor(TypedDict):
    """One agent on a board."""

    name: str
    colour: str
    sprite: int


class Item(TypedDict):
    """An entry of a board's legend."""

    name: str
    sprite: int
    value: float


class Board(TypedDict):
    """Agents that move on a grid, turn by turn."""

    kind: Literal["board"]
    title: str
    ground: list[str]
    """Two colours, as on a chessboard."""
    sprites: list[str]
    """Images of one cell as data URIs; 0 in `cells` and `views` is empty, k is the sprite k − 1."""
    cells: Packed  # uint8 [T, H, W]: without the agents
    actors: list[Actor]
    positions: Packed  # int16 [T + 1, N, 2]: row and column, at the start and after each turn
    actions: Packed  # uint8 [T, N]
    action_names: list[str]
    rewards: Packed  # float32 [T, N]
    values: Packed  # float32 [T, N, A]
    views: Packed  # uint8 [T, N, h, w]: what each agent saw when it chose
    whole: bool
    """Whether views show the whole board, instead of what is around an agent."""
    legend: list[Item]


class Film(TypedDict):
    """Frames of one episode."""

    kind: Literal["film"]
    title: str
    palette: str
    """Colours as hexadecimal digits, six each."""
    frames: Packed  # uint8 [K, H, W]: index of the colour, XOR that of the frame before
    shown: list[int]
    """The steps shown, of T."""
    rewards: Packed  # float32 [T]
    actions: Packed  # uint16 [T − 1 or T]: chosen in the state shown
    action_names: list[str]
    values: Packed  # float32 [T − 1 or T, A]


class Maps(TypedDict):
    """A learned distribution and its target, over time."""

    kind: Literal["maps"]
    title: str
    target: Packed  # float32 [H, W]
    learned: Packed  # uint16 [K, H, W]: in units of `unit`
    unit: float
    ticks: list[int]
    tick: str
    distances: list[float | None]
    """Total variation distance at each tick."""
    distance: str
    """How it was measured."""
    caption: str


Scene = Board | Film | Maps


def pack(array: np.ndarray) -> Packed:
    """Compress an array for a page."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    text = base64.b64encode(zlib.compress(array.tobytes(), 9)).decode("ascii")
    return {"dtype": LETTERS[array.dtype.str], "shape": list(array.shape), "data": text}


def data_uri(image: Image.Image) -> str:
    """A small image as the text of an `<img src>`."""
    file = BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def pack_film(frames: np.ndarray) -> tuple[Packed, str]:
    """Compress images, uint8 [K, H, W, 3]. Returns the frames and their palette."""
    from PIL import Image

    codes = frames.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)  # [K, H, W]
    colours, indices = np.unique(codes, return_inverse=True)
    indices = indices.reshape(codes.shape)
    if len(colours) > MOST_COLOURS:  # smooth edges have many shades that look the same
        every = np.stack([colours >> 16, (colours >> 8) & 255, colours & 255], axis=-1).astype(np.uint8)
        counts = np.bincount(indices.ravel(), minlength=len(colours))
        # Frequent colours count more, but not so much that a small sprite loses its own.
        often = np.repeat(every, np.minimum(1 + np.sqrt(counts).astype(int), 200), axis=0)
        chosen = Image.fromarray(often[None]).quantize(MOST_COLOURS, Image.Quantize.MEDIANCUT, kmeans=1)
        palette = np.reshape(chosen.getpalette() or [], (-1, 3))[:MOST_COLOURS].astype(np.int32)
        nearest = np.concatenate(
            [
                ((some[:, None].astype(np.int32) - palette[None]) ** 2).sum(-1).argmin(1)
                for some in np.array_split(every, 1 + len(every) // 4096)
            ]
        )
        indices, colours = nearest[indices], palette.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    film = indices.astype(np.uint8)
    film[1:] ^= film[:-1].copy()  # what does not change becomes zeros
    return pack(film), "".join(f"{colour:06x}" for colour in colours)


def make_maps(pictures: np.ndarray) -> np.ndarray:
    """Sum maps [K, H, W] over blocks, so that no side has more than `LARGEST_MAP` cells."""
    for axis in (1, 2):
        size = pictures.shape[axis]
        if size > LARGEST_MAP:
            starts = np.arange(0, size, -(-size // LARGEST_MAP))
            pictures = np.add.reduceat(pictures, starts, axis=axis)
    return pictures
