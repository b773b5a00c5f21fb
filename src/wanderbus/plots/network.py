"""Picture of a network: nodes on a circle, arrows between them, and a list of what the arrows mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from wanderbus.plots.shapes import Point, document, line, polygon, rect, text

_NODE_WIDTH: Final = 150.0
_LINE: Final = 15.0
"""Height of a line of text."""

_MARGIN: Final = 30.0
_SIDE: Final = 9.0
"""Distance of an arrow from the line between the centres, so that two opposite arrows do not cover each other."""

_HEAD: Final = 9.0
_CHARACTER: Final = 6.4
"""Width of a character of the notes."""

_NOTE_CHARACTERS_MAX: Final = 150
_INK, _PALE, _FAINT = "#1f4e79", "#dbe7f3", "#c0392b"


class PlotNode(NamedTuple):
    """A node: its name and lines of text; ``is_away`` draws it in another colour."""

    name: str
    lines: Sequence[str] = ()
    is_away: bool = False


class Arrow(NamedTuple):
    """An arrow from one node to another, by their names, with a short label; ``is_broken`` draws it dashed and red."""

    tail: str
    head: str
    label: str
    is_broken: bool = False


def network(nodes: Sequence[PlotNode], arrows: Sequence[Arrow], notes: Sequence[str] = ()) -> str:
    """Return an SVG document of the nodes and arrows, with ``notes`` below them."""
    notes = [_shortened(each) for each in notes]
    height = _LINE * (1 + max((len(node.lines) for node in nodes), default=0)) + 12
    radius = 0.0 if len(nodes) < 2 else max(150.0, 1.5 * _NODE_WIDTH / (2 * math.sin(math.pi / len(nodes))))
    width = 2 * (radius + _NODE_WIDTH / 2 + _MARGIN)
    width = max(width, 2 * _MARGIN + _CHARACTER * max(map(len, notes), default=0))
    drawn_height = 2 * (radius + height / 2 + _MARGIN)
    centres = {
        node.name: _on_circle(place, len(nodes), radius, width, drawn_height) for place, node in enumerate(nodes)
    }
    parts: list[str] = []
    for arrow in arrows:
        parts += _arrow(arrow, centres[arrow.tail], centres[arrow.head], height)
    for node in nodes:
        parts += _node(node, centres[node.name], height)
    parts += [text(_MARGIN, drawn_height + _LINE * number, each) for number, each in enumerate(notes)]
    return document(math.ceil(width), math.ceil(drawn_height + _LINE * len(notes) + _MARGIN / 2), parts)


def _on_circle(place: int, count: int, radius: float, width: float, height: float) -> Point:
    angle = 2 * math.pi * place / count - math.pi / 2
    return width / 2 + radius * math.cos(angle), height / 2 + radius * math.sin(angle)


def _node(node: PlotNode, centre: Point, height: float) -> Iterator[str]:
    left, top = centre[0] - _NODE_WIDTH / 2, centre[1] - height / 2
    yield rect(left, top, _NODE_WIDTH, height, _FAINT if node.is_away else _INK)
    yield rect(left + 1.5, top + 1.5, _NODE_WIDTH - 3, height - 3, "white" if node.is_away else _PALE)
    yield text(left + 8, top + _LINE + 2, node.name, size=14)
    for number, words in enumerate(node.lines, 2):
        yield text(left + 8, top + _LINE * number + 2, words, size=11)


def _arrow(arrow: Arrow, tail: Point, head: Point, height: float) -> Iterator[str]:
    """Yield an arrow beside the line between two centres, from the edge of one node to that of the other."""
    length = math.dist(tail, head)
    along = (head[0] - tail[0]) / length, (head[1] - tail[1]) / length
    aside = -along[1], along[0]
    gap = _to_edge(along, height) + _SIDE
    start = _moved(tail, along, gap, aside, _SIDE)
    end = _moved(head, along, -gap, aside, _SIDE)
    neck = _moved(end, along, -_HEAD)
    colour = _FAINT if arrow.is_broken else _INK
    yield line([start, neck], colour, dashed=arrow.is_broken)
    yield polygon([end, _moved(neck, aside, _HEAD / 2), _moved(neck, aside, -_HEAD / 2)], colour)
    # A third of the way: near the sender, and not where arrows cross in the middle.
    place = _moved(start, along, length / 3 - gap / 3, aside, 8.0)
    yield text(place[0] - _CHARACTER * len(arrow.label) / 2, place[1] + 4, arrow.label, size=11)


def _to_edge(along: Point, height: float) -> float:
    """Return the distance from the centre of a node to its edge in the direction ``along``."""
    across = _NODE_WIDTH / 2 / abs(along[0]) if along[0] else math.inf
    return min(across, height / 2 / abs(along[1]) if along[1] else math.inf)


def _moved(place: Point, along: Point, distance: float, aside: Point = (0.0, 0.0), shift: float = 0.0) -> Point:
    return (
        place[0] + along[0] * distance + aside[0] * shift,
        place[1] + along[1] * distance + aside[1] * shift,
    )


def _shortened(note: str) -> str:
    return note if len(note) <= _NOTE_CHARACTERS_MAX else f"{note[: _NOTE_CHARACTERS_MAX - 3]}..."
