"""Formulas as inline SVG drawn by matplotlib: pages need neither a network nor JavaScript."""

import html
from functools import lru_cache

from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path
from matplotlib.textpath import TextPath

COMMAND = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}
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
    box = MathTextParser("path").parse(text, dpi=72, prop=FontProperties(size=size, math_fontfamily="cm"))
    width, height, depth = box[0], box[1], box[2]
    drawn = TextPath((0, 0), text, size=size, prop=FONT)
    pieces = [
        COMMAND[code] + " ".join(f"{x:.2f},{-y:.2f}" for x, y in zip(points[::2], points[1::2], strict=True))
        if code != Path.CLOSEPOLY
        else "Z"
        for points, code in drawn.iter_segments(simplify=False, curves=True)
    ]
    rise, fall = height - depth + 2, depth + 2
    style = f' style="vertical-align:{-fall:.1f}px"' if kind == "inline" else ""
    return (
        f'<svg class="math" role="img" aria-label="{html.escape(latex)}" width="{width + 2:.1f}" height="{rise + fall:.1f}" '
        f'viewBox="-1 {-rise:.2f} {width + 2:.2f} {rise + fall:.2f}"{style}><path fill="currentColor" d="{"".join(pieces)}"/></svg>'
    )


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
