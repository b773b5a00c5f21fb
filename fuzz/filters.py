"""Fuzzing of the parsers of expressions of interest: ECI, CESQL and XML (SPEC A-06, O-01, U-04).

Inputs are texts of generated filters, their mutations, sequences of the language's keywords, very large texts, and
noise. Any input may only raise :class:`FilterError`, with a position within the text; the parsing is measured. The
canonical text of a result is parsed to the same tree, unless that is too long or too deep, and the compiled filter
agrees with the reference on events.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from fuzz.mutation import mutated
from fuzz.target_runs import Broken, Target
from tests.filters import cesql_trees, trees
from wanderbus import filters, limits
from wanderbus.errors import FilterError
from wanderbus.filters import eci, xml
from wanderbus.filters.cesql.writing import write as write_cesql
from wanderbus.filters.compiled import compile_node
from wanderbus.filters.evaluate import holds

NOISE_BYTES_MAX: Final = 400
WORDS_MAX: Final = 30
SWOLLEN_BYTES_MAX: Final = limits.EXPRESSION_CHARACTERS_MAX + 100

ECI_WORDS: Final = (
    *(
        "(",
        ")",
        ",",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "=",
        "&&",
        '"',
        "'",
        "`",
        "\\",
        "a",
        "Price",
        "`x y`",
        "any",
        "all",
    ),
    *(
        "and",
        "or",
        "not",
        "AND",
        "exists",
        "in",
        "prefix",
        "suffix",
        "contains",
        "everything",
        "nothing",
        "cesql",
        "and(",
    ),
    *(
        "1",
        "-2.5e3",
        "9223372036854775808",
        "1e999",
        "+inf",
        "2026-11-21",
        "2026-11-21T10:00:00Z",
        "true",
        '"x"',
        "'\\u'",
    ),
    *('cesql "a = 1 + 2"', "any a (", "in (1, 2)", "\u00b2", "\u0663", "\ud800", "\x00"),
)
CESQL_WORDS: Final = (
    *(
        "(",
        ")",
        ",",
        "=",
        "!=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "'",
        '"',
        "\\",
        "a",
        "Price",
        "subject",
        "AND",
        "or",
        "XOR",
    ),
    *(
        "NOT",
        "not",
        "EXISTS",
        "LIKE",
        "IN",
        "in (1, 'x')",
        "+",
        "-",
        "*",
        "/",
        "%",
        "1",
        "-1",
        "2147483648",
        "TRUE",
        "'%_'",
    ),
    *(
        "LENGTH(",
        "CONCAT(",
        "SUBSTRING('abc', 1, 2)",
        "LEFT(",
        "NO_SUCH(",
        "INT(",
        "BOOL('x')",
        "\ud800",
        "\x00",
        "\u0663",
    ),
)
XML_WORDS: Final = (
    *(
        "<filter>",
        "</filter>",
        "<and>",
        "</and>",
        "<or/>",
        "<not>",
        "</not>",
        "<any",
        "<all",
        "<exists",
        "/>",
        ">",
        "<",
    ),
    *(
        ' name="a"',
        " name='b'",
        ' xmlns="x"',
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<?xml version='1.0'?>",
        "<!DOCTYPE a [",
        "]>",
    ),
    *(
        "&lt;",
        "&#0;",
        "&#x110000;",
        "&bomb;",
        '<!ENTITY b "xx">',
        "<Integer>1</Integer>",
        "<String>x</String>",
        "\ud800",
        "\0",
    ),
)
SWELLING: Final = {
    "eci": (
        "(",
        "not ",
        "and(",
        "any a (",
        "a == 1 or ",
        "a in (1,",
        "1",
        '\\"',
        " ",
        "a == 1 and not (",
        "`",
        "x.",
        "9e15 ",
        "<",
    ),
    "cesql": (
        "(",
        "NOT ",
        "- ",
        "1 + ",
        "a AND ",
        "LEFT(",
        "a IN (1, ",
        "'",
        "\\'",
        " ",
        "1",
        "x",
        "%",
        "a LIKE '%",
        "EXISTS ",
    ),
    "xml": (
        "<and>",
        "<not>",
        "<filter>",
        "&lt;",
        "<!--",
        "<a b='c' ",
        " ",
        "x",
        "<or/>",
        "&#65;",
        "<any name='a'>",
        "]]>",
        "<",
    ),
}


def text_of(language: str, random: Random) -> str:
    """Return the text of a generated filter."""
    match language:
        case "eci":
            return eci.write(trees.random_node(random, 4, trees.NAMES))
        case "xml":
            return xml.write(trees.random_node(random, 4, trees.NAMES))
        case _:
            return write_cesql(cesql_trees.random_expression(random))


def make(language: str, words: Sequence[str], random: Random) -> bytes:
    """Return an approximate expression."""
    drawn = random.random()
    if drawn < 0.2:
        return _encoded(text_of(language, random))
    if drawn < 0.6:
        some = [_encoded(text_of(language, random)) for _ in range(2)]
        return mutated(random, some[0], some)[:SWOLLEN_BYTES_MAX]
    if drawn < 0.94:
        return _encoded(random.choice((" ", " ", "")).join(random.choices(words, k=random.randint(1, WORDS_MAX))))
    if drawn < 0.97:
        return _swollen(language, random)
    return random.randbytes(random.randint(0, NOISE_BYTES_MAX))


def _swollen(language: str, random: Random) -> bytes:
    """Return a text in which one piece is repeated, sometimes up to the longest possible text."""
    before = _encoded(text_of(language, random))
    piece = random.choice(SWELLING[language]).encode()
    most = SWOLLEN_BYTES_MAX // len(piece) if random.random() < 0.5 else 300
    at = random.choice((0, random.randint(0, len(before)), len(before)))
    return (before[:at] + piece * random.randint(1, most) + before[at:])[:SWOLLEN_BYTES_MAX]


def handle(language: str, data: bytes) -> bool:
    """Read an expression."""
    text = _decoded(data)
    try:
        filters.parse(text, language)
    except FilterError as error:
        if error.position is None or not 0 <= error.position <= len(text):
            raise Broken(f"{error.position} is no place in the text") from None
        return False
    return True


def examine(language: str, data: bytes) -> None:
    """Show the fault, or check the result: the canonical text is parsed to the same tree, and both evaluators agree."""
    try:
        read = filters.parse(_decoded(data), language)
    except FilterError as error:
        error.pointed()
        return
    text = str(read)
    try:
        if filters.parse(text).root != read.root:
            raise Broken("the canonical text is of another tree")
    except FilterError as error:
        # Texts of other languages may be short where this one is not; texts of its own are never refused.
        if language == "eci" or not ("at most" in error.reason or "deep" in error.reason):
            raise Broken(f"the canonical text is not read: {error}") from None
    attributes = trees.random_event(Random(zlib.crc32(data)), read.root).attributes
    if compile_node(read.root)(attributes) is not holds(read.root, attributes):
        raise Broken("the compiled filter says otherwise than the reference")


def _target(language: str, words: Sequence[str]) -> Target:
    making: Callable[[Random], bytes] = partial(make, language, words)
    return Target(f"filters-{language}", making, partial(handle, language), partial(examine, language))


TARGETS: Final = (_target("eci", ECI_WORDS), _target("cesql", CESQL_WORDS), _target("xml", XML_WORDS))


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _decoded(data: bytes) -> str:
    """Return ``data`` as text, with half a character for invalid UTF-8."""
    try:
        return data.decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return data.decode(errors="surrogateescape")
