"""Serialization of texts and of an index's attributes to flat arrays, and back (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wanderbus.matching.columns import KINDS, AttributeColumns, Columns, Marks, Words
from wanderbus.matching.segment import Array, RowSegment


def packed(name: str, texts: Sequence[str]) -> dict[str, Array]:
    """Return texts as their concatenated bytes, and the end of each."""
    encoded = [each.encode("utf-8", "surrogatepass") for each in texts]
    return {
        f"{name}.bytes": np.frombuffer(b"".join(encoded), np.uint8),
        f"{name}.ends": np.cumsum([len(each) for each in encoded], dtype=np.int64),
    }


def unpacked(name: str, arrays: Mapping[str, Array]) -> list[str]:
    """Return the texts that :func:`packed` packed under this name."""
    together = arrays[f"{name}.bytes"].tobytes()
    ends = arrays[f"{name}.ends"].tolist()
    return [together[begin:end].decode("utf-8", "surrogatepass") for begin, end in zip([0, *ends], ends, strict=False)]


def columns_packed(columns: Columns) -> dict[str, Array]:
    """Return the attributes with their columns, words and marks."""
    arrays = {
        "column_count": np.array([columns.count]),
        **packed("attributes", list(columns.attributes)),
        "attribute_columns": np.array([each.columns for each in columns.attributes.values()], np.int32).reshape(
            -1, len(KINDS)
        ),
        **_words_packed("subjects", columns.subjects),
    }
    for number, attribute in enumerate(columns.attributes.values()):
        arrays |= _words_packed(f"words {number}", attribute.words)
        arrays |= packed(f"marks {number}", attribute.marks.ends)
        arrays[f"marks {number}.values"] = np.array(attribute.marks.values, np.float64)
    return arrays


def columns_unpacked(arrays: Mapping[str, Array]) -> Columns:
    """Return the columns that :func:`columns_packed` packed."""
    columns = Columns(int(arrays["column_count"][0]))
    columns.subjects = _words_unpacked("subjects", arrays)
    for number, name in enumerate(unpacked("attributes", arrays)):
        attribute = columns.attributes[name] = AttributeColumns(name)
        attribute.columns = arrays["attribute_columns"][number].tolist()
        attribute.words = _words_unpacked(f"words {number}", arrays)
        attribute.marks = Marks(unpacked(f"marks {number}", arrays), arrays[f"marks {number}.values"].tolist())
    columns.settle()
    return columns


def _words_packed(name: str, words: Words) -> dict[str, Array]:
    known = words.all()
    return {**packed(name, known), f"{name}.numbers": np.array([words[each] for each in known], np.float64)}


def _words_unpacked(name: str, arrays: Mapping[str, Array]) -> Words:
    return Words(dict(zip(unpacked(name, arrays), arrays[f"{name}.numbers"].tolist(), strict=True)))


def segments_in(arrays: Mapping[str, Array]) -> list[RowSegment]:
    """Return the segments whose arrays have numbers before their names."""
    segments: list[RowSegment] = []
    while f"{len(segments)}.rows" in arrays:
        prefix = f"{len(segments)}."
        its = {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}
        segments.append(RowSegment.from_arrays(its))
    return segments


class Slots(NamedTuple):
    """State of every slot of an index: its traits, and its segment and row."""

    traits: Array
    homes: Array
    places: Array
