"""The style of all charts: colours, fonts and an empty figure.

Charts use matplotlib's objects, not `pyplot`, so that no global state changes and no display is needed. Matplotlib is
imported when the first chart is drawn. Colours are Okabe and Ito's, which colour-blind readers can tell apart.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, BLUE = "#24292f", "#6e7781", "#0072B2"
LABELLED = (("23456789", 2.5), ("2346", 20), ("25", 200))  # digits to label, on axes that span up to this factor
STYLE: Any = {
    "figure.titlesize": 15,
    "figure.titleweight": "bold",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": "#afb8c1",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelcolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e9ed",
    "grid.linewidth": 0.8,
    "xtick.color": "#afb8c1",
    "ytick.color": "#afb8c1",
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "legend.frameon": False,
}


def chart_style() -> AbstractContextManager[None]:
    """Apply the style while the context is open."""
    from matplotlib import rc_context

    return rc_context(STYLE)


def new_figure(height: float) -> Figure:
    """An empty figure, 1600 pixels wide and 160 pixels high per unit of `height`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.03, hspace=0.04)
    figure = Figure(figsize=(10, height), dpi=160, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def spans_powers(values: np.ndarray) -> bool:
    """Whether a logarithmic axis is useful: within a factor of three it looks like a linear one."""
    values = values[np.isfinite(values)]
    smallest = values[values > 0].min(initial=np.inf)
    return bool(values.min(initial=0.0) >= 0 and values.max(initial=0.0) > 3 * smallest)


def label_powers(axes: Axes) -> None:
    """Label a short axis between powers of ten, too."""
    bottom, top = axes.get_ylim()
    labelled = next((digits for digits, span in LABELLED if top < span * bottom), "")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in labelled else "")


def thousands(value: float) -> str:
    """Abbreviate large numbers: 20k or 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:,.4g}{letter}"
    return f"{value:,.0f}"
