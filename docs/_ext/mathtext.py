"""Formulas as inline SVG drawn by matplotlib: pages need neither a network nor
JavaScript.
"""

import html
from functools import lru_cache

from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path
from matplotlib.textpath import TextPath

COMMAND = {
    Path.MOVETO: "M",
    Path.LINETO: "L",
    Path.CURVE3: "Q",
    Path.CURVE4: "C",
    Path.CLOSEPOLY: "Z",
}
SIZE = {"inline": 15, "display": 21}  # px
FONT = FontProperties(family="serif", math_fontfamily="cm")


@lru_cache(maxsize=512)
def svg(latex: str, kind: str) -> str:
    """One formula; the text it stands for is its label.

    Raises
    ------
    ValueError
        matplotlib cannot set the formula.
    """
    size = SIZE[kind]
    latex = latex.replace(r"\frac", r"\dfrac") if kind == "display" else latex
    text = "$" + " ".join(latex.split()).replace(r"\quad", r"\ \ \ ") + "$"
    font = FontProperties(size=size, math_fontfamily="cm")
    parsed = MathTextParser("path").parse(text, dpi=72, prop=font)
    width, height, depth = parsed[0], parsed[1], parsed[2]
    rise, fall = height - depth + 2, depth + 2  # above and below the base line
    style = f' style="vertical-align:{-fall:.1f}px"' if kind == "inline" else ""
    return (
        f'<svg class="math" role="img" aria-label="{html.escape(latex)}" '
        f'width="{width + 2:.1f}" height="{rise + fall:.1f}" '
        f'viewBox="-1 {-rise:.2f} {width + 2:.2f} {rise + fall:.2f}"{style}>'
        f'<path fill="currentColor" d="{_outline(text, size)}"/></svg>'
    )


def _outline(text: str, size: int) -> str:
    """The formula's outline as the data of an SVG path, whose y axis points down."""
    segments = TextPath((0, 0), text, size=size, prop=FONT).iter_segments(
        simplify=False, curves=True
    )
    pieces = []
    for points, code in segments:
        if code == Path.CLOSEPOLY:
            pieces.append("Z")
            continue
        pairs = zip(points[::2], points[1::2], strict=True)
        pieces.append(COMMAND[code] + " ".join(f"{x:.2f},{-y:.2f}" for x, y in pairs))
    return "".join(pieces)


def inline(self, node) -> None:
    """Write a formula within text."""
    self.body.append(svg(node.astext(), "inline"))
    raise nodes.SkipNode


def display(self, node) -> None:
    """Write a formula on a line of its own."""
    self.body.append(f'<div class="math">{svg(node.astext(), "display")}</div>')
    raise nodes.SkipNode


def setup(app):
    """Register as the renderer of formulas."""
    app.add_html_math_renderer("mathtext", (inline, None), (display, None))
    app.config.html_math_renderer = "mathtext"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
