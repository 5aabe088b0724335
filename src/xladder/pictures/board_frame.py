"""One turn of a board scene as an image."""

from __future__ import annotations

import base64
import zlib
from functools import cache
from io import BytesIO

import numpy as np
from PIL import Image

from xladder.pictures.scenes import LETTERS, Board, Packed

LARGEST_TILE, WIDEST = 40, 640  # pixels of a cell and of the board
DTYPES = {name: letter for letter, name in LETTERS.items()}


def draw_board(board: Board, turn: int = -1) -> np.ndarray:
    """uint8 [height, width, 3]: the board at the end of a turn, by default the last."""
    cells, positions = unpack(board["cells"])[turn], unpack(board["positions"])[turn]
    rows, columns = cells.shape
    tile = max(4, min(LARGEST_TILE, WIDEST // columns))
    image = _ground(rows, columns, tile, tuple(board["ground"])).copy()
    for (row, column), code in np.ndenumerate(cells):
        if code:
            image.alpha_composite(_sprite(board["sprites"][code - 1], tile), (column * tile, row * tile))
    for actor, (row, column) in zip(board["actors"], positions, strict=True):
        image.alpha_composite(_sprite(board["sprites"][actor["sprite"]], tile), (int(column) * tile, int(row) * tile))
    return np.asarray(image.convert("RGB"))


def unpack(packed: Packed) -> np.ndarray:
    """The array that `scenes.pack` made text of."""
    data = zlib.decompress(base64.b64decode(packed["data"]))
    return np.frombuffer(data, DTYPES[packed["dtype"]]).reshape(packed["shape"])


@cache
def _ground(rows: int, columns: int, tile: int, colours: tuple[str, ...]) -> Image.Image:
    image = Image.new("RGBA", (columns * tile, rows * tile))
    for row, column in np.ndindex(rows, columns):
        x, y = column * tile, row * tile
        image.paste(colours[(row + column) % len(colours)], (x, y, x + tile, y + tile))
    return image


@cache
def _sprite(uri: str, tile: int) -> Image.Image:
    found = Image.open(BytesIO(base64.b64decode(uri.partition(",")[2])))
    return found.convert("RGBA").resize((tile, tile), Image.Resampling.LANCZOS)
