"""Streams of filters in XML, and gzip of one and of many (SPEC O-01, O-02)."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Iterator
from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters import trees
from tests.filters.xml_schema import is_valid
from wanderbus import filters, limits
from wanderbus.errors import FilterError, LimitExceeded
from wanderbus.filters import xml
from wanderbus.filters.ast import EVERYTHING, Node, Not

OPEN = b'<filters xmlns="urn:wanderbus:1">'


def some(count: int, seed: int = 1) -> list[Node]:
    rng = random.Random(seed)
    return [trees.random_node(rng) for _ in range(count)]


def stream(nodes: list[Node]) -> bytes:
    return b"".join(xml.write_stream(nodes))


def cut(data: bytes, rng: random.Random, longest: int) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        step = rng.randint(0, longest)
        yield data[at : at + step]
        at += step


@settings(max_examples=50)
@given(st.lists(trees.nodes(), max_size=4), st.integers(), st.sampled_from([1, 7, 5_000]))
def test_a_stream_comes_back_however_it_is_cut(nodes: list[Node], seed: int, longest: int) -> None:
    rng = random.Random(seed)
    assert list(xml.read_stream(cut(stream(nodes), rng, longest))) == nodes
    packed = b"".join(xml.compress(xml.write_stream(nodes)))
    assert list(xml.read_stream(xml.decompress(cut(packed, rng, longest)))) == nodes


def test_the_schema_admits_a_stream() -> None:
    assert is_valid(stream(some(30)).decode())
    assert is_valid(stream([]).decode())


def test_each_filter_is_read_when_it_has_arrived() -> None:
    """Also where it comes compressed: each piece is flushed."""
    nodes = some(40)
    arrived: list[bytes] = []

    def arriving() -> Iterator[bytes]:
        for piece in xml.compress(xml.write_stream(nodes)):
            arrived.append(piece)
            yield piece

    for count, node in enumerate(xml.read_stream(xml.decompress(arriving())), start=1):
        assert node == nodes[count - 1]
        assert len(arrived) == 1 + count
    assert len(arrived) == len(nodes) + 3


def test_a_split_tag_does_not_hold_its_filter_up() -> None:
    data = stream([EVERYTHING, EVERYTHING])
    end = data.index(b"</filter>") + len(b"</filter>")
    pieces = [data[: end - 1], data[end - 1 : end], data[end:]]
    given_so_far: list[bytes] = []

    def arriving() -> Iterator[bytes]:
        for piece in pieces:
            given_so_far.append(piece)
            yield piece

    read = xml.read_stream(arriving())
    assert next(read) == EVERYTHING
    assert len(given_so_far) == 2


def test_memory_is_that_of_one_filter() -> None:
    """The stream has more bytes and more elements than one filter may have."""
    count = 20_000
    tracemalloc.start()
    try:
        assert sum(1 for _ in xml.read_stream(xml.write_stream(repeat(EVERYTHING, count)))) == count
        assert tracemalloc.get_traced_memory()[1] < 50 * count
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("data", "reason", "read_before"),
    [
        (b"", "no element", 0),
        (OPEN, "no element", 0),
        (b'<filter xmlns="urn:wanderbus:1"/>', "expected <filters>", 0),
        (OPEN + b"<filter><and/></filter>", "no element", 1),
        (OPEN + b"<filter><and/></filter><filter/></filters>", "must contain one element", 1),
        (OPEN + b"<filter><and/></filter>and<filter><and/></filter></filters>", "text beside", 1),
        (OPEN + b"<filter><and/></filter>and</filters>", "text beside", 1),
        (OPEN + b"and</filters>", "text beside", 0),
        (OPEN + b"<filter><and/></filter><exists/></filters>", "expected <filter>", 1),
        (OPEN + b"<filter><and/></filter>\xff</filters>", "invalid token", 1),
        (OPEN + b"<filter><and/></filter></filters><a/>", "junk", 1),
        (OPEN + b" " * 2 * limits.XML_FILTER_BYTES_MAX, "longer than", 0),
        (OPEN + b"<!-- -->" * limits.XML_FILTER_BYTES_MAX, "longer than", 0),
        (OPEN + b"<filter><exists name='" + b"a" * limits.XML_FILTER_BYTES_MAX + b"'/></filter>", "longer than", 0),
    ],
)
def test_faults_of_streams(data: bytes, reason: str, read_before: int) -> None:
    read: list[Node] = []
    with pytest.raises(FilterError, match=reason):
        read.extend(xml.read_stream([data]))
    assert len(read) == read_before


def test_the_fault_is_shown_in_its_filter() -> None:
    data = stream([EVERYTHING] * 9)[: -len(b"</filters>\n")] + b'<filter><exists nam="a"/></filter></filters>'
    with pytest.raises(FilterError) as caught:
        list(xml.read_stream([data]))
    assert caught.value.text.startswith("<filter><exists")
    assert caught.value.position == len("<filter>")


def test_one_filter_compressed() -> None:
    for node in some(20):
        filter = filters.Filter("", "eci", node)
        packed = xml.compressed(filter)
        assert gzip.decompress(packed) == xml.write_filter(filter)
        assert xml.decompressed(packed) == node
        assert xml.compressed(filter) == packed
        assert packed[4:8] == bytes(4), "the time of writing"


def test_a_stream_compresses_better_than_its_filters() -> None:
    """EVALUATIONS E5: streaming compression pays, that of single filters hardly does."""
    each = [filters.parse(f"Stock == PETR{n % 7} and Price < {n}") for n in range(200)]
    plain = sum(len(xml.write_filter(one)) for one in each)
    alone = sum(len(xml.compressed(one)) for one in each)
    together = sum(len(piece) for piece in xml.compress(xml.write_stream(one.root for one in each)))
    assert together < plain / 4
    assert together < alone / 2


def test_members_one_after_another() -> None:
    data = stream(some(10))
    packed = b"".join(gzip.compress(data[at : at + 100], mtime=0) for at in range(0, len(data), 100))
    for longest in (1, 30, 10_000):
        assert b"".join(xml.decompress(cut(packed, random.Random(2), longest))) == data


def test_whole_steps_lose_nothing() -> None:
    for size in (65_536, 2 * 65_536, 65_535, 65_537):
        data = bytes(size)
        assert b"".join(xml.decompress([gzip.compress(data)])) == data
        assert b"".join(xml.decompress(cut(gzip.compress(data), random.Random(3), 1))) == data


def test_nothing_that_has_arrived_is_held_back() -> None:
    """Not even the rest of a full step in the decompressor."""
    packed = gzip.compress(bytes(65_536 + 200))
    for end in range(11, len(packed)):
        pieces: list[bytes] = []
        with pytest.raises(FilterError, match="incomplete gzip data"):
            pieces.extend(xml.decompress([packed[:end]]))
        assert sum(map(len, pieces)) == len(zlib.decompressobj(31).decompress(packed[:end]))


def test_a_bomb_is_refused_by_the_name_of_the_limit() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    with pytest.raises(LimitExceeded, match="XML_FILTER_BYTES_MAX") as caught:
        xml.decompressed(bomb)
    assert caught.value.limit == "XML_FILTER_BYTES_MAX"
    pieces: list[bytes] = []
    with pytest.raises(LimitExceeded) as caught:
        pieces.extend(xml.decompress([bomb], bytes_max=1_000_000))
    assert caught.value.limit == "XML_STREAM_BYTES_MAX"
    assert 900_000 < sum(map(len, pieces)) <= 1_000_000
    with pytest.raises(FilterError, match="longer than"):
        list(xml.read_stream(xml.decompress([bomb])))


@pytest.mark.parametrize("damage", [b"", b"\x1f\x8b", b"plain text", zlib.compress(b"<and/>")])
def test_invalid_gzip(damage: bytes) -> None:
    with pytest.raises(FilterError, match="gzip"):
        xml.decompressed(damage)


def test_damage_is_seen() -> None:
    packed = xml.compressed(filters.Filter("", "eci", Not(EVERYTHING)))
    for end in range(len(packed)):
        with pytest.raises(FilterError, match="incomplete gzip data"):
            xml.decompressed(packed[:end])
    with pytest.raises(FilterError, match="not gzip data"):
        xml.decompressed(packed + b"more")
    with pytest.raises(FilterError, match="not UTF-8"):
        xml.decompressed(gzip.compress("é".encode("latin-1")))
    with pytest.raises(FilterError, match="not gzip data"):
        xml.decompressed(packed[:-8] + bytes(8))
