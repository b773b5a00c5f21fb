"""Parts of charts: positions of quantities, axes, and round numbers for ticks."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from wanderbus.plots.charts import TICKS_MAX, Area, axis, bar, legend, ticks, whisker
from wanderbus.plots.shapes import document, figure, line, text

AREA = Area(left=10, right=110, top=20, floor=120, most=50.0)


def test_quantities_rise_from_the_floor() -> None:
    assert [AREA.y(value) for value in (0.0, 25.0, 50.0)] == [120, 70, 20]
    assert [AREA.middle(place, 2) for place in range(2)] == [35, 85]


def test_an_axis_has_a_label_at_each_step() -> None:
    parts = axis(AREA, 2, lambda value: f"{value:g} %", label_x=0)
    picture = ElementTree.fromstring(document(120, 130, parts))
    labels = {each.text: float(each.attrib["y"]) - 4 for each in picture if each.tag.endswith("text")}
    assert labels == {"0 %": 120, "25 %": 70, "50 %": 20}


def test_bars_stand_on_the_floor_and_whiskers_span_a_range() -> None:
    assert "y='70.0' width='8.0' height='50.0'" in bar(AREA, 20, 8, 25.0, "red")
    assert "y='68.0' width='2.0' height='54.0'" in whisker(AREA, 20, 2, 0.0, 25.0, "red", beyond=2)


def test_words_are_escaped() -> None:
    parts = [text(0, 0, "a < b"), *legend(0, 0, [("<c>", "red")], apart=10), line([(0, 0), (1, 1)], "red", dashed=True)]
    picture = ElementTree.fromstring(document(10, 10, [*parts, bar(AREA, 0, 1, 1.0, "red", "d & e")]))
    words = [each.text for each in picture.iter() if each.text]
    assert words == ["a < b", "<c>", "d & e"]


@given(st.floats(1e-3, 1e7))
def test_ticks_are_round_few_and_within(limit: float) -> None:
    marks = ticks(limit)
    assert marks[0] == 0
    assert 3 <= len(marks) <= TICKS_MAX
    assert marks[-1] <= limit * (1 + 1e-6)
    assert f"{marks[1]:e}"[0] in "125"


def test_words_that_xml_forbids_or_that_turn_the_text_around_are_escaped() -> None:
    hostile = "a\ufffe\u202eb\x00"
    parts = [text(0, 0, hostile), bar(AREA, 0, 1, 1.0, "red", f"one\n{hostile}")]
    for picture in (document(10, 10, parts), figure(10, 10, parts, hostile)):
        shown = [each.text for each in ElementTree.fromstring(picture).iter() if each.text]
        assert shown == ["a\\ufffe\\u202eb\\u0000", "one\na\\ufffe\\u202eb\\u0000"]
