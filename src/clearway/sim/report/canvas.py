"""Drawing surface of the report: matplotlib figures that become inline SVG in the colours of the page.

Colours are written as marks that no drawing uses otherwise and become CSS variables in the SVG, so one drawing serves
a light and a dark page. Text stays text: it can be selected, and any script shows that the reader's machine has.
"""

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

import numpy as np

from clearway.sim.extras import load_extra

WIDTH_INCHES: Final = 9.2
"""Width of every drawing. With a font of nine points it reads like the text around it on a page of 1,000 pixels."""

INK, MUTED, GRID = "#010203", "#010204", "#010205"
PALETTE_SIZE: Final = 8
POLICY_COLOURS: Final = tuple(f"#0102{16 + index:02x}" for index in range(PALETTE_SIZE))
CSS_OF_MARK: Final[Mapping[str, str]] = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)"} | {
    colour: f"var(--policy-{index})" for index, colour in enumerate(POLICY_COLOURS)
}
LIGHT_PALETTE: Final = ("#0072b2", "#d55e00", "#009e73", "#cc3f8f", "#7b5cc4", "#8a6d00", "#2aa0c8", "#555555")
DARK_PALETTE: Final = ("#56b4e9", "#ff9248", "#3fcf9f", "#f08cc4", "#b79cf2", "#e6c54a", "#7fd6f2", "#b5b5b5")
"""After Okabe and Ito's colours for all kinds of colour vision, darker and lighter so that each has a contrast of at
least 3 : 1 to its page (WCAG 2.1, 1.4.11). Lines differ in their dashes and points in their shapes as well."""

DASHES: Final = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
NAME_CHARACTERS: Final = 26
"""Longer names are cut in drawings; the tables show them whole."""

STYLE: Final = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0.0,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
}


def colour_of(index: int) -> str:
    """The colour mark of the run with this place in the report."""
    return POLICY_COLOURS[index % PALETTE_SIZE]


def dash_of(index: int) -> Any:
    """The dashes of its lines: the first eight runs differ by colour, and neighbours by dashes too."""
    return DASHES[(index + index // PALETTE_SIZE) % len(DASHES)]


def marker_of(index: int) -> str:
    """The shape of its points."""
    return MARKERS[(index + index // PALETTE_SIZE) % len(MARKERS)]


def cut_name(name: str) -> str:
    """`name`, or its beginning where it is too long for a drawing."""
    return name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 1] + "…"


def make_axes(rows: int, columns: int, height: float, **options: Any) -> tuple[Any, Sequence[Any]]:
    """A figure of `height` inches and its rows × columns axes, flat. Call within `drawing_style`."""
    figure = load_extra("matplotlib.figure").Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(np.asarray(axes).flat)


def drawing_style(extra: Mapping[str, Any] | None = None) -> Any:
    """A context in which matplotlib draws in the report's style."""
    return load_extra("matplotlib").rc_context({**STYLE, **(extra or {})})


def render_svg(figure: Any, name: str, description: str) -> str:
    """The figure as an `<svg>` element for an HTML page. `name` keeps its ids apart from those of other drawings."""
    target = io.StringIO()
    with drawing_style({"svg.hashsalt": name}), warnings.catch_warnings():
        # The reader's browser has the glyphs; only the layout here is made without them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return _fit_for_page(target.getvalue(), description)


def _fit_for_page(document: str, description: str) -> str:
    body = re.sub(r"<metadata>.*?</metadata>", "", document[document.index("<svg") :], flags=re.DOTALL)
    referred = set(re.findall(r"#([\w.-]+)", body))
    body = re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in referred else "", body)
    body = re.sub(r"#0102[0-9a-f]{2}", lambda mark: CSS_OF_MARK.get(mark[0], mark[0]), body)
    opening = re.search(r'viewBox="([^"]+)"', body)
    assert opening is not None, "matplotlib writes a viewBox"
    head = f'<svg viewBox="{opening[1]}" role="img" aria-label="{escape(description)}"'
    head += ' xmlns:xlink="http://www.w3.org/1999/xlink">'
    return re.sub(r"<svg[^>]*>", lambda _: head, body, count=1).strip()
