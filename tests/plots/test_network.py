"""The picture of a network."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from wanderbus.plots.network import Arrow, PlotNode, network

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_everything_is_inside_the_picture(count: int) -> None:
    nodes = [PlotNode(f"s{number}", ("127.0.0.1:5060", "leads <16>"), is_away=number == 1) for number in range(count)]
    arrows = [Arrow(one.name, other.name, "12") for one in nodes for other in nodes if one != other]
    root = ElementTree.fromstring(network(nodes, arrows, ["a & b", "x" * 500]))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for shape in root.iter():
        if "x" in shape.attrib:
            assert 0 <= float(shape.attrib["x"]) < width
            assert 0 <= float(shape.attrib["y"]) < height
        for point in shape.attrib.get("points", "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x < width
            assert 0 <= y < height
    texts = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert texts.count("leads <16>") == count
    assert texts[-2:] == ["a & b", "x" * 147 + "..."]
    assert len(list(root.iter(f"{SVG}polygon"))) == len(arrows)


def test_opposite_arrows_do_not_cover_each_other() -> None:
    root = ElementTree.fromstring(network([PlotNode("a"), PlotNode("b")], [Arrow("a", "b", "1"), Arrow("b", "a", "2")]))
    one, other = (each.attrib["points"].split() for each in root.iter(f"{SVG}polyline"))
    starts = [tuple(map(float, line[0].split(","))) for line in (one, other[::-1])]
    assert math.dist(*starts) > 10


def test_a_broken_arrow_is_dashed_and_of_the_colour_of_faults() -> None:
    nodes = [PlotNode("a"), PlotNode("b", is_away=True)]
    root = ElementTree.fromstring(network(nodes, [Arrow("a", "b", "1"), Arrow("b", "a", "x", is_broken=True)]))
    whole, broken = root.iter(f"{SVG}polyline")
    assert ("stroke-dasharray" in whole.attrib, "stroke-dasharray" in broken.attrib) == (False, True)
    assert whole.attrib["stroke"] != broken.attrib["stroke"] == "#c0392b"
