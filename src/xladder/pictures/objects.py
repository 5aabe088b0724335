"""Objects that a sampler built, as small pictures in rows. Shapes: B objects, H rows, W columns of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from xladder.pictures.charts import FAINT, chart_style, new_figure

PER_ROW = 8


def draw_objects(path: str | Path, images: np.ndarray, captions: list[str], title: str, caption: str) -> None:
    """Draw objects float [B, H, W] with a caption each, eight in a row, all on one scale of greys."""
    rows = -(-len(images) // PER_ROW)
    low, high = float(images.min()), float(images.max())
    shape = float(np.clip(images.shape[1] / images.shape[2], 0.3, 1.5))
    flat = images.shape[1] * 4 < images.shape[2]
    with chart_style():
        figure = new_figure(height=0.9 + rows * (0.35 + 1.1 * shape))
        places = figure.subplots(rows, PER_ROW, squeeze=False).ravel()
        for axes in places:
            axes.axis("off")
        for axes, image, text in zip(places, images, captions, strict=False):
            axes.axis("on")
            axes.spines[:].set_visible(True)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.imshow(image, cmap="gray_r", vmin=low, vmax=max(high, low + 1), aspect="auto" if flat else "equal")
            axes.set_title(text, fontsize=8, color=FAINT)
        figure.supxlabel(caption, x=0.008, ha="left", fontsize=9.5, color=FAINT)
        figure.suptitle(title, x=0.008, ha="left")
        figure.savefig(path)
