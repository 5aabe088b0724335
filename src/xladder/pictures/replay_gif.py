"""An epoch on a board as an animated GIF.

Shapes: T turns, N agents, H rows, W columns.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from xladder.pictures.boards import Replay
from xladder.pictures.sprites import AGENT_COLOURS, GROUND, agent_sprite, font, halo_sprite, text_on
from xladder.pictures.tiles import visible
from xladder.worlds.entities import Cell

FRAME_MS, LAST_MS = 160, 1500
LARGEST_TILE, NARROWEST, WIDEST = 40, 360, 640
FADES = ("FF", "B4", "5A")  # opacity of a reward, in its turn and the turns after
PAPER, INK, FAINT, GAIN, LOSS, GOLD = "#FFFFFF", "#1F2328", "#6E7781", "#0B5CAD", "#B3261E", "#FFB400"
COLOURS = 255  # one fewer than a GIF can have: Pillow uses the last for unchanged pixels
EDGE, LINE, SCORE, GAP, ICON = 12, 30, 70, 6, 20  # pixels: margin, text line, an agent's score, between, item


def write_gif(path: str | Path, replay: Replay, rewards: np.ndarray, title: str) -> None:
    """Write one epoch as a looping animation.

    Args:
        path: the GIF file.
        replay: the epoch.
        rewards: float [T, N].
        title: title of the animation.
    """
    if not len(replay.codes):
        raise ValueError("A replay needs at least one turn.")
    stage = _Stage(replay, title)
    turns, rewards = len(replay.codes), np.asarray(rewards, float)
    frames = [stage.draw(replay.codes[t], rewards[: t + 1], replay.places[: t + 1], turns) for t in range(turns)]
    # One palette and no dithering: unchanged pixels are not stored again.
    palette = _palette(frames, rewards)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    first.save(
        path,
        save_all=True,
        append_images=others,
        duration=[FRAME_MS] * len(others) + [LAST_MS],
        loop=0,
        optimize=True,
        palette=palette.getpalette(),
    )


class _Stage:
    """The constant parts of the animation, on which frames are drawn."""

    def __init__(self, replay: Replay, title: str):
        self.replay = replay
        (height, width), agents = replay.codes.shape[1:], replay.places.shape[1]
        self.tile = tile = max(4, min(LARGEST_TILE, WIDEST // width))
        self.width = max(NARROWEST, tile * width)
        self.left, self.top = (self.width - tile * width) // 2, LINE + 4
        self.under = self.top + tile * height
        self.scores_per_row = (self.width - 2 * EDGE + GAP) // (SCORE + GAP)
        rows = self._place_prices(agents)
        used = [code for code in np.unique(replay.codes) if visible(replay.cells[code].kinds)]
        self.sprites = {code: replay.sprite(tile, replay.cells[code]) for code in used}
        self.agents = [agent_sprite(tile, i) for i in range(agents)]
        self.halos = [halo_sprite(round(1.3 * tile), colour) for colour in (LOSS, GOLD)]
        self.empty = Image.new("RGBA", (self.width, self.under + LINE * rows + GAP), PAPER)
        draw = ImageDraw.Draw(self.empty)
        draw.text((EDGE, self.top // 2), _fit(title, self.width - 2 * EDGE, 15), INK, font(15), anchor="lm")
        for row, column in np.ndindex(height, width):
            x, y = self._corner(row, column)
            draw.rectangle([x, y, x + tile - 1, y + tile - 1], fill=GROUND[(row + column) % 2])
        self._draw_prices(draw)

    def draw(self, codes: np.ndarray, rewards: np.ndarray, places: np.ndarray, turns: int) -> Image.Image:
        """The frame after `len(rewards)` of all `turns`, given the board and the history so far."""
        frame = self.empty.copy()
        for (row, column), code in np.ndenumerate(codes):
            if code in self.sprites:
                frame.alpha_composite(self.sprites[code], self._corner(row, column))
        self._draw_flashes(frame, rewards, places, range(1, len(FADES)))
        for sprite, place, reward in zip(self.agents, places[-1], rewards[-1], strict=True):
            x, y = self._corner(*place)
            if reward:
                halo = self.halos[bool(reward > 0)]
                spread = (halo.width - self.tile) // 2
                frame.alpha_composite(halo, (x - spread, y - spread))
            frame.alpha_composite(sprite, (x, y))
        self._draw_flashes(frame, rewards, places, range(1))  # above the agents: the newest rewards
        draw = ImageDraw.Draw(frame)
        middle = self.under + LINE // 2 + 1
        draw.text((EDGE, middle), f"turn {len(rewards)}/{turns}", FAINT, font(13), anchor="lm")
        draw.text((EDGE + 105, middle), f"return {_plain(rewards.sum())}", INK, font(13), anchor="lm")
        self._draw_scores(draw, rewards.sum(0))
        return frame.convert("RGB")

    def _corner(self, row: int, column: int) -> tuple[int, int]:
        return self.left + int(column) * self.tile, self.top + int(row) * self.tile

    def _place_prices(self, agents: int) -> int:
        """Find the line below the board where all prices fit, at its right. Returns the number of lines."""
        full, last = divmod(agents - 1, self.scores_per_row)
        # Room is left beside the return, beside the last scores, or in a line below them.
        taken = {0: 215, full + 1: (last + 1) * (SCORE + GAP), full + 2: 0}
        needed = sum(map(_price_width, self.replay.legend)) - GAP + EDGE
        fitting = [line for line, used in taken.items() if EDGE + used + needed <= self.width]
        self.price_line = min(fitting, default=full + 2)
        return max(full + 1, self.price_line) + 1

    def _draw_prices(self, draw: ImageDraw.ImageDraw) -> None:
        """Draw the value of each cell that pays, from the right, as far as there is room."""
        right, middle = self.width - EDGE, self.under + LINE * self.price_line + LINE // 2 + 1
        for cell in reversed(self.replay.legend):
            left = right - _price_width(cell) + GAP
            if left < EDGE:
                break
            draw.text((right, middle), _signed(cell.value), FAINT, font(12), anchor="rm")
            self.empty.alpha_composite(self.replay.sprite(ICON, cell), (left, middle - ICON // 2))
            right = left - GAP

    def _draw_flashes(self, frame: Image.Image, rewards: np.ndarray, places: np.ndarray, ages: range) -> None:
        """Draw rewards that rise from where they were earned, and fade."""
        layer = Image.new("RGBA", frame.size)
        draw = ImageDraw.Draw(layer)
        size = max(10, round(0.38 * self.tile))
        for age in ages[: max(0, len(rewards) - ages.start)]:
            for agent in np.flatnonzero(rewards[-1 - age]):
                reward = rewards[-1 - age, agent]
                x, y = self._corner(*places[-1 - age, agent])
                half = font(size).getlength(_signed(reward)) / 2 + 2
                at = (
                    min(max(x + self.tile / 2, half), self.width - half),  # keep it inside the image
                    y - self.tile * (0.15 + 0.25 * age),
                )
                colour, fade = GAIN if reward > 0 else LOSS, FADES[age]
                draw.text(
                    at, _signed(reward), colour + fade, font(size), "mm", stroke_width=2, stroke_fill=PAPER + fade
                )
        frame.alpha_composite(layer)

    def _draw_scores(self, draw: ImageDraw.ImageDraw, totals: np.ndarray) -> None:
        """Draw each agent's number and return on its colour."""
        for agent, total in enumerate(totals):
            colour = AGENT_COLOURS[agent % len(AGENT_COLOURS)]
            row, column = divmod(agent, self.scores_per_row)
            x, y = EDGE + column * (SCORE + GAP), self.under + LINE * (row + 1)
            draw.rounded_rectangle([x, y, x + SCORE, y + LINE - GAP], 8, fill=colour)
            middle = y + (LINE - GAP) // 2
            draw.text((x + 8, middle), str(agent + 1), text_on(colour), font(11), anchor="lm")
            size = next((size for size in (13, 12, 11) if font(size).getlength(_plain(total)) <= SCORE - 28), 10)
            draw.text((x + SCORE - 8, middle), _plain(total), text_on(colour), font(size), anchor="rm")


def _palette(frames: list[Image.Image], rewards: np.ndarray) -> Image.Image:
    """A palette for all frames, from a few of them and those with the highest and the lowest reward, [T, N]."""
    extremes = {int(rewards.max(1).argmax()), int(rewards.min(1).argmin())}  # gains and losses may be rare
    some = [frames[t] for t in sorted({*range(0, len(frames), max(1, len(frames) // 6)), *extremes})]
    sheet = Image.new("RGB", (some[0].width, some[0].height * len(some)))
    for i, frame in enumerate(some):
        sheet.paste(frame, (0, i * frame.height))
    return sheet.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, kmeans=1)


def _price_width(cell: Cell) -> int:
    """Pixels that a price takes, with the space before it."""
    return GAP + ICON + 1 + round(font(12).getlength(_signed(cell.value)))


def _plain(value: float) -> str:
    return f"{value:.4g}".replace("-", "\u2212")


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "\u2212")


def _fit(text: str, width: int, size: int) -> str:
    """`text`, cut short with an ellipsis where it is wider than `width` pixels."""
    while font(size).getlength(text) > width:
        text = text.rstrip("…")[:-1] + "…"
    return text
