"""A game as an animated GIF, with the score so far under it. Shapes: T steps, K of them shown, H and W pixels."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageColor, ImageDraw

from xladder.pictures.replay_gif import COLOURS, EDGE, FAINT, GAIN, INK, LAST_MS, LINE, LOSS, NARROWEST, PAPER, WIDEST
from xladder.pictures.replay_gif import _fit as fit
from xladder.pictures.sprites import font

MOST_BYTES, MOST_SECONDS, MOST_FRAMES = 3_000_000, 30.0, 400
SHORTEST_MS = 20  # browsers slow down what is meant to be faster
FLASH_MS = 500  # for so long, what was earned stands beside the score
RARE = 0.3  # rewards in no more than this share of the steps are news
TALLEST = 480  # pixels of a picture that is enlarged
FREQUENT = 160  # colours that are kept as they are
BAR, PALE = 3, "#E6E9ED"  # how far the game is: pixels, and the colour of what is still to come


def write_game_gif(
    path: str | Path,
    frames: np.ndarray,
    rewards: np.ndarray,
    title: str,
    seconds_per_frame: float = 0.06,
    draw: Callable[[np.ndarray], np.ndarray] | None = None,
) -> None:
    """Write a game as an animation that loops, each picture being shown for so long and the last one longer.

    `frames` is uint8 [T, H, W, 3], the picture after each step; `rewards` is float [T]. With `draw`, `frames` are
    observations [T, …], and it makes pictures of those that are shown. Of a long game this is every k-th step and
    the last, so that the animation takes no more than `MOST_SECONDS` and the file no more than `MOST_BYTES`.
    """
    steps, rewards = len(frames), np.asarray(rewards, float)
    if not steps:
        raise ValueError("An animation of a game needs one step or more, but there are none.")
    if rewards.shape != (steps,):
        raise ValueError(f"Every step has one reward, but {steps} steps came with rewards of shape {rewards.shape}.")
    frame_ms = max(SHORTEST_MS, 10 * round(100 * seconds_per_frame))  # a GIF counts in hundredths of a second
    most = max(1, int(min(MOST_FRAMES, (1000 * MOST_SECONDS - LAST_MS) / frame_ms)))
    every, file = -(-steps // most), b""
    while not file or len(file) > MOST_BYTES:
        shown = np.unique([*range(0, steps, every), steps - 1])
        pictures = frames[shown] if draw is None else draw(frames[shown])
        sheets = _draw_game(pictures, shown, rewards, title, flash=max(1, round(FLASH_MS / frame_ms)))
        file = _encode(sheets, frame_ms)
        if every >= steps:
            break  # two pictures at most: fewer make no game
        every = max(every + 1, round(every * len(file) / MOST_BYTES))
    Path(path).write_bytes(file)


def _draw_game(
    pictures: np.ndarray, shown: np.ndarray, rewards: np.ndarray, title: str, flash: int
) -> list[Image.Image]:
    """Pictures [K, H, W, 3] of the steps [K], with title and score; what is earned flashes for so many of them."""
    stage, scores = _Stage(pictures.shape[2], pictures.shape[1], title), np.cumsum(rewards)
    rare, sheets = np.mean(rewards != 0) <= RARE, []
    for k, (picture, step) in enumerate(zip(pictures, shown, strict=True)):
        since = shown[k - flash] + 1 if k >= flash else 0
        earned = rewards[since : step + 1].sum() if rare else 0.0
        sheets.append(stage.draw(picture, int(step) + 1, len(rewards), scores[step], earned))
    return sheets


class _Stage:
    """The sheet that pictures of W × H pixels are put on, each with its caption."""

    def __init__(self, width: int, height: int, title: str):
        times = max(1, min(NARROWEST // width, TALLEST // height))  # small pixels become larger squares
        shrink = min(1.0, WIDEST / width, WIDEST / height)
        self.size = round(width * times * shrink), round(height * times * shrink)
        self.width = max(NARROWEST, self.size[0])
        self.left, self.top = (self.width - self.size[0]) // 2, LINE + 4
        self.under = self.top + self.size[1]
        self.empty = Image.new("RGB", (self.width, self.under + BAR + LINE), PAPER)
        text = fit(title, self.width - 2 * EDGE, 15)
        ImageDraw.Draw(self.empty).text((EDGE, self.top // 2), text, INK, font(15), anchor="lm")

    def draw(self, picture: np.ndarray, step: int, steps: int, score: float, earned: float) -> Image.Image:
        """The sheet after a step, counted from 1."""
        frame, image = self.empty.copy(), Image.fromarray(picture)
        smooth = self.size[0] < image.width
        resampling = Image.Resampling.LANCZOS if smooth else Image.Resampling.NEAREST
        frame.paste(image.resize(self.size, resampling), (self.left, self.top))
        draw, middle, right = ImageDraw.Draw(frame), self.under + BAR + LINE // 2, self.width - EDGE
        for share, colour in ((1.0, PALE), (step / steps, FAINT)):
            draw.rectangle([0, self.under, share * (self.width - 1), self.under + BAR - 1], colour)
        draw.text((EDGE, middle), f"step {step:,}/{steps:,}", FAINT, font(13), anchor="lm")
        said = f"score {_number(score)}"
        draw.text((right, middle), said, INK, font(13), anchor="rm")
        if earned:
            beside = right - font(13).getlength(said) - EDGE
            draw.text((beside, middle), _number(earned, "+"), GAIN if earned > 0 else LOSS, font(13), anchor="rm")
        return frame


def _number(value: float, sign: str = "") -> str:
    """Whole points as such, and two decimals of anything else."""
    digits = 0 if float(value).is_integer() else 2
    return f"{value + 0.0:{sign},.{digits}f}".replace("-", "\u2212")


class _Palette:
    """Colours that suit all sheets of a game: the most frequent as they are, for the others something near.

    Pillow's own search for the nearest colour is coarse and would give a grey screen a tint.
    """

    def __init__(self, sheets: list[Image.Image]):
        some = np.concatenate([_codes(sheet).ravel() for sheet in sheets[:: max(1, len(sheets) // 6)]])
        codes, counts = np.unique(some, return_counts=True)
        frequent = codes[np.argsort(-counts, kind="stable")[:FREQUENT]]
        rest = some[~np.isin(some, frequent)]
        # Text has its colours even if none of these sheets shows what is earned.
        fade, paper = np.linspace(0, 1, 8)[:, None], np.array(ImageColor.getrgb(PAPER))
        texts = [fade * paper + (1 - fade) * ImageColor.getrgb(ink) for ink in (INK, FAINT, GAIN, LOSS)]
        colours = np.concatenate([_colours(frequent), *texts])
        if len(rest):
            row = Image.fromarray(_colours(rest)[None].astype(np.uint8))
            others = row.quantize(COLOURS - len(colours), Image.Quantize.MEDIANCUT).getpalette() or []
            colours = np.concatenate([colours, np.reshape(others, (-1, 3))])[:COLOURS]
        self.colours = colours.round().astype(np.uint8)  # [P, 3]
        self._nearest = np.full(1 << 24, COLOURS, np.uint8)  # by code; `COLOURS` where nobody has asked yet

    def apply(self, sheet: Image.Image) -> Image.Image:
        """The sheet in these colours, without dithering: what does not move stays the same and is not stored."""
        codes = _codes(sheet)
        new = np.unique(codes[self._nearest[codes] == COLOURS])
        for some in np.array_split(new, 1 + len(new) // 4096):  # all at once could fill the memory
            apart = _colours(some)[:, None] - self.colours[None].astype(float)
            self._nearest[some] = (apart**2).sum(axis=-1).argmin(axis=1)
        image = Image.fromarray(self._nearest[codes])
        image.putpalette(self.colours.tobytes())
        return image


def _codes(sheet: Image.Image) -> np.ndarray:
    """Each pixel's colour as one number, int32 [H, W]."""
    red, green, blue = np.moveaxis(np.asarray(sheet).astype(np.int32), -1, 0)
    return (red << 16) + (green << 8) + blue


def _colours(codes: np.ndarray) -> np.ndarray:
    """Colours [N, 3] from their codes [N]."""
    return np.stack([codes >> 16, (codes >> 8) & 255, codes & 255], axis=-1).astype(float)


def _encode(sheets: list[Image.Image], frame_ms: int) -> bytes:
    palette, file = _Palette(sheets), BytesIO()
    first, *others = [palette.apply(sheet) for sheet in sheets]
    look = {"duration": [frame_ms] * len(others) + [LAST_MS], "loop": 0, "optimize": True}
    first.save(file, "GIF", save_all=True, append_images=others, palette=palette.colours.tobytes(), **look)
    return file.getvalue()
