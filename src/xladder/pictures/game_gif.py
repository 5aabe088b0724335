"""An episode as an animated GIF, with the score below. Shapes: T steps, K of them shown, H and W pixels."""

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
SHORTEST_MS = 20  # browsers slow down faster animations
FLASH_MS = 500  # how long a reward is shown beside the score
RARE = 0.3  # rewards are shown only if at most this share of the steps has one
TALLEST = 480  # pixels of an enlarged image
FREQUENT = 160  # colours that are kept unchanged
BAR, PALE = 3, "#E6E9ED"  # progress bar: height in pixels, and colour of the remaining part


def write_game_gif(
    path: str | Path,
    frames: np.ndarray,
    rewards: np.ndarray,
    title: str,
    seconds_per_frame: float = 0.06,
    draw: Callable[[np.ndarray], np.ndarray] | None = None,
) -> None:
    """Write an episode as a looping animation. Long ones are shortened to every k-th step and the last.

    The animation takes at most `MOST_SECONDS` and `MOST_BYTES`; its last image is shown longer.

    Args:
        path: the GIF file.
        frames: uint8 [T, H, W, 3], the image after each step; with `draw`, observations [T, …].
        rewards: float [T].
        title: title of the animation.
        seconds_per_frame: how long each image is shown.
        draw: renders the observations that are shown.
    """
    steps, rewards = len(frames), np.asarray(rewards, float)
    if not steps:
        raise ValueError("An animation of an episode needs at least one step.")
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
            break  # no fewer than two images
        every = max(every + 1, round(every * len(file) / MOST_BYTES))
    Path(path).write_bytes(file)


def _draw_game(
    pictures: np.ndarray, shown: np.ndarray, rewards: np.ndarray, title: str, flash: int
) -> list[Image.Image]:
    """Images [K, H, W, 3] of the steps [K], with title and score; a reward is shown for `flash` images."""
    stage, scores = _Stage(pictures.shape[2], pictures.shape[1], title), np.cumsum(rewards)
    rare, sheets = np.mean(rewards != 0) <= RARE, []
    for k, (picture, step) in enumerate(zip(pictures, shown, strict=True)):
        since = shown[k - flash] + 1 if k >= flash else 0
        earned = rewards[since : step + 1].sum() if rare else 0.0
        sheets.append(stage.draw(picture, int(step) + 1, len(rewards), scores[step], earned))
    return sheets


class _Stage:
    """The canvas for images of W × H pixels with their captions."""

    def __init__(self, width: int, height: int, title: str):
        times = max(1, min(NARROWEST // width, TALLEST // height))  # small pixels are enlarged to squares
        shrink = min(1.0, WIDEST / width, WIDEST / height)
        self.size = round(width * times * shrink), round(height * times * shrink)
        self.width = max(NARROWEST, self.size[0])
        self.left, self.top = (self.width - self.size[0]) // 2, LINE + 4
        self.under = self.top + self.size[1]
        self.empty = Image.new("RGB", (self.width, self.under + BAR + LINE), PAPER)
        text = fit(title, self.width - 2 * EDGE, 15)
        ImageDraw.Draw(self.empty).text((EDGE, self.top // 2), text, INK, font(15), anchor="lm")

    def draw(self, picture: np.ndarray, step: int, steps: int, score: float, earned: float) -> Image.Image:
        """The canvas after a step, counted from 1."""
        frame, image = self.empty.copy(), Image.fromarray(picture)
        smooth = self.size[0] < image.width
        resampling = Image.Resampling.LANCZOS if smooth else Image.Resampling.NEAREST
        frame.paste(image.resize(self.size, resampling), (self.left, self.top))
        draw, middle, right = ImageDraw.Draw(frame), self.under + BAR + LINE // 2, self.width - EDGE
        for share, colour in ((1.0, PALE), (step / steps, FAINT)):
            draw.rectangle([0, self.under, share * (self.width - 1), self.under + BAR - 1], colour)
        draw.text((EDGE, middle), f"step {step:,}/{steps:,}", FAINT, font(13), anchor="lm")
        text = f"score {_number(score)}"
        draw.text((right, middle), text, INK, font(13), anchor="rm")
        if earned:
            beside = right - font(13).getlength(text) - EDGE
            draw.text((beside, middle), _number(earned, "+"), GAIN if earned > 0 else LOSS, font(13), anchor="rm")
        return frame


def _number(value: float, sign: str = "") -> str:
    """Integers as such, anything else with two decimals."""
    digits = 0 if float(value).is_integer() else 2
    return f"{value + 0.0:{sign},.{digits}f}".replace("-", "\u2212")


class _Palette:
    """A palette for all frames of an episode: the most frequent colours unchanged, the nearest for the others.

    Pillow's own search for the nearest colour is coarse and would tint a grey screen.
    """

    def __init__(self, sheets: list[Image.Image]):
        some = np.concatenate([_codes(sheet).ravel() for sheet in sheets[:: max(1, len(sheets) // 6)]])
        codes, counts = np.unique(some, return_counts=True)
        frequent = codes[np.argsort(-counts, kind="stable")[:FREQUENT]]
        rest = some[~np.isin(some, frequent)]
        # Text colours are kept even if none of these frames shows a reward.
        fade, paper = np.linspace(0, 1, 8)[:, None], np.array(ImageColor.getrgb(PAPER))
        texts = [fade * paper + (1 - fade) * ImageColor.getrgb(ink) for ink in (INK, FAINT, GAIN, LOSS)]
        colours = np.concatenate([_colours(frequent), *texts])
        if len(rest):
            row = Image.fromarray(_colours(rest)[None].astype(np.uint8))
            others = row.quantize(COLOURS - len(colours), Image.Quantize.MEDIANCUT).getpalette() or []
            colours = np.concatenate([colours, np.reshape(others, (-1, 3))])[:COLOURS]
        self.colours = colours.round().astype(np.uint8)  # [P, 3]
        self._nearest = np.full(1 << 24, COLOURS, np.uint8)  # by code; `COLOURS` where not computed yet

    def apply(self, sheet: Image.Image) -> Image.Image:
        """Convert a frame to this palette, without dithering, so that unchanged pixels are not stored again."""
        codes = _codes(sheet)
        new = np.unique(codes[self._nearest[codes] == COLOURS])
        for some in np.array_split(new, 1 + len(new) // 4096):  # all at once could take too much memory
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
