"""An epoch of the treasure hunt as an animated GIF.

Shapes: T turns, N agents, C cells of the flat board with its margin.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from xladder.pictures.sprites import (
    AGENT_COLOURS,
    GROUND,
    agent_sprite,
    font,
    halo_sprite,
    item_sprite,
    text_on,
    wall_sprite,
)
from xladder.worlds.treasurehunt_host import FIRST_ITEM, WALL

if TYPE_CHECKING:
    from xladder.families.multi_agent.treasurehunt_presets import WorldConfig

FRAME_MS, LAST_MS = 160, 1500
LARGEST_TILE, NARROWEST, WIDEST = 40, 360, 640
FADES = ("FF", "B4", "5A")  # opacity of a reward, in its turn and the turns after
PAPER, INK, FAINT, GAIN, LOSS, GOLD = "#FFFFFF", "#1F2328", "#6E7781", "#0B5CAD", "#B3261E", "#FFB400"
COLOURS = 255  # one fewer than a GIF can have: Pillow uses the last for unchanged pixels
EDGE, LINE, SCORE, GAP, ICON = 12, 30, 70, 6, 20  # pixels: margin, text line, an agent's score, between, item


def write_gif(
    path: str | Path,
    boards: np.ndarray,
    rewards: np.ndarray,
    world: WorldConfig,
    positions: np.ndarray,
    title: str,
) -> None:
    """Write one epoch as a looping animation.

    Args:
        path: the GIF file.
        boards: int8 [T, C], the board at the end of each turn.
        rewards: float [T, N].
        world: the world's settings.
        positions: int [T, N], the cell of each agent at the end of each turn, an index into the flat board.
        title: title of the animation.
    """
    if not len(boards):
        raise ValueError("A replay needs at least one turn.")
    stage = _Stage(world, title)
    turns, rewards = len(boards), np.asarray(rewards, float)
    frames = [stage.draw(boards[t], rewards[: t + 1], positions[: t + 1], turns) for t in range(turns)]
    # One palette and no dithering: unchanged pixels are not stored again.
    palette = _palette(frames)
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

    def __init__(self, world: WorldConfig, title: str):
        self.world = world
        self.tile = tile = max(4, min(LARGEST_TILE, WIDEST // world.width))
        self.width = max(NARROWEST, tile * world.width)
        self.left, self.top = (self.width - tile * world.width) // 2, LINE + 4
        self.under = self.top + tile * world.height
        self.scores_per_row = (self.width - 2 * EDGE + GAP) // (SCORE + GAP)
        rows = -(-world.num_agents // self.scores_per_row)
        self.sprites = {FIRST_ITEM + i: item_sprite(tile, name, i) for i, name in enumerate(world.item_names)}
        self.sprites[WALL] = wall_sprite(tile)
        self.agents = [agent_sprite(tile, i) for i in range(world.num_agents)]
        self.halos = [halo_sprite(round(1.3 * tile), colour) for colour in (LOSS, GOLD)]
        self.empty = Image.new("RGBA", (self.width, self.under + LINE * (rows + 1) + GAP), PAPER)
        draw = ImageDraw.Draw(self.empty)
        draw.text((EDGE, self.top // 2), _fit(title, self.width - 2 * EDGE, 15), INK, font(15), anchor="lm")
        for row, column in np.ndindex(world.height, world.width):
            x, y = self._corner(row, column)
            draw.rectangle([x, y, x + tile - 1, y + tile - 1], fill=GROUND[(row + column) % 2])
        self._draw_prices(draw)

    def draw(self, board: np.ndarray, rewards: np.ndarray, positions: np.ndarray, turns: int) -> Image.Image:
        """The frame after `len(rewards)` of all `turns`, given the board and the history so far."""
        world, margin = self.world, self.world.radius
        frame = self.empty.copy()
        cells = board.reshape(world.height + 2 * margin, world.width + 2 * margin)
        for (row, column), code in np.ndenumerate(cells[margin:, margin:][: world.height, : world.width]):
            if code in self.sprites:
                frame.alpha_composite(self.sprites[code], self._corner(row, column))
        self._draw_flashes(frame, rewards, positions, range(1, len(FADES)))
        for sprite, position, reward in zip(self.agents, positions[-1], rewards[-1], strict=True):
            x, y = self._place(position)
            if reward:
                halo = self.halos[bool(reward > 0)]
                spread = (halo.width - self.tile) // 2
                frame.alpha_composite(halo, (x - spread, y - spread))
            frame.alpha_composite(sprite, (x, y))
        self._draw_flashes(frame, rewards, positions, range(1))  # above the agents: the newest rewards
        draw = ImageDraw.Draw(frame)
        middle = self.under + LINE // 2 + 1
        draw.text((EDGE, middle), f"turn {len(rewards)}/{turns}", FAINT, font(13), anchor="lm")
        draw.text((EDGE + 105, middle), f"return {_plain(rewards.sum())}", INK, font(13), anchor="lm")
        self._draw_scores(draw, rewards.sum(0))
        return frame.convert("RGB")

    def _corner(self, row: int, column: int) -> tuple[int, int]:
        return self.left + column * self.tile, self.top + row * self.tile

    def _place(self, position: int) -> tuple[int, int]:
        """The corner of the tile at a flat index of the board."""
        row, column = divmod(int(position), self.world.width + 2 * self.world.radius)
        return self._corner(row - self.world.radius, column - self.world.radius)

    def _draw_prices(self, draw: ImageDraw.ImageDraw) -> None:
        """Draw the value of each item, from the right, as far as there is room."""
        right, middle = self.width - EDGE, self.under + LINE // 2 + 1
        prices = list(enumerate(zip(self.world.item_names, self.world.item_values, strict=True)))
        for i, (name, value) in reversed(prices):
            left = right - round(font(12).getlength(_signed(value))) - ICON - 2
            if left < EDGE + 215:
                break
            draw.text((right, middle), _signed(value), FAINT, font(12), anchor="rm")
            self.empty.alpha_composite(item_sprite(ICON, name, i), (left, middle - ICON // 2))
            right = left - 8

    def _draw_flashes(self, frame: Image.Image, rewards: np.ndarray, positions: np.ndarray, ages: range) -> None:
        """Draw rewards that rise from where they were earned, and fade."""
        layer = Image.new("RGBA", frame.size)
        draw = ImageDraw.Draw(layer)
        size = max(10, round(0.38 * self.tile))
        for age in ages[: max(0, len(rewards) - ages.start)]:
            for agent in np.flatnonzero(rewards[-1 - age]):
                reward = rewards[-1 - age, agent]
                x, y = self._place(positions[-1 - age, agent])
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
            draw.text((x + SCORE - 8, middle), _plain(total), text_on(colour), font(13), anchor="rm")


def _palette(frames: list[Image.Image]) -> Image.Image:
    """A palette for all frames."""
    some = frames[:: max(1, len(frames) // 6)]
    sheet = Image.new("RGB", (some[0].width, some[0].height * len(some)))
    for i, frame in enumerate(some):
        sheet.paste(frame, (0, i * frame.height))
    return sheet.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, kmeans=1)


def _plain(value: float) -> str:
    return f"{value:.4g}".replace("-", "\u2212")


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "\u2212")


def _fit(text: str, width: int, size: int) -> str:
    """`text`, cut short with an ellipsis where it is wider than `width` pixels."""
    while font(size).getlength(text) > width:
        text = text.rstrip("…")[:-1] + "…"
    return text
