"""Shapes of SVG: a document, and what is drawn in it.

Words may come from anybody: characters that XML forbids, or that change the order of the text around them, are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from wanderbus.event_text import escaped

Point = tuple[float, float]


def document(width: int, height: int, parts: Iterable[str]) -> str:
    """Return the file that draws ``parts`` on white."""
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img'>"
        f"<rect width='{width}' height='{height}' fill='white'/>{''.join(parts)}</svg>\n"
    )


def figure(width: int, height: int, parts: Iterable[str], label: str) -> str:
    """Return a picture within a page, on the page's own ground; ``label`` is for those who do not see it."""
    words = _words(label)
    return f"<svg viewBox='0 0 {width} {height}' role='img' aria-label='{words}'>{''.join(parts)}</svg>"


def rect(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    """Return a filled rectangle; ``title`` is its tooltip."""
    label = f"<title>{_words(title)}</title>" if title else ""
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' fill='{colour}'>{label}</rect>"


def text(x: float, y: float, words: str, *, size: int = 12) -> str:
    """Return one line of text that begins at ``x``, with its baseline at ``y``."""
    return f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' font-family='sans-serif'>{_words(words)}</text>"


def _words(text: str) -> str:
    """Return ``text`` as XML, each of its lines printable."""
    return "\n".join(escape(escaped(each), quote=True) for each in text.split("\n"))


def line(points: Sequence[Point], colour: str, *, dashed: bool = False) -> str:
    """Return a line through ``points``."""
    through = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = " stroke-dasharray='4 3'" if dashed else ""
    return f"<polyline points='{through}' fill='none' stroke='{colour}' stroke-width='1.6'{dashes}/>"


def polygon(points: Sequence[Point], colour: str) -> str:
    """Return a filled polygon."""
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f"<polygon points='{corners}' fill='{colour}'/>"
