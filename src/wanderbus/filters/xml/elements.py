"""Bounded reader of XML elements, and the escapes of written text (SPEC O-01).

It reads XML 1.0 in UTF-8, whatever the declaration says. Document types, hence custom entities, and processing
instructions are refused; comments are skipped. Time and memory grow only with the input.

XML 1.0 has no way to write most control characters, so in names and texts a backslash begins an escape: ``\\`` is a
backslash, and ``\u0000`` to ``\uffff`` the character of that number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Generic, NoReturn, TypeVar
from xml.parsers import expat

from wanderbus.errors import FilterError

NAMESPACE: Final = "urn:wanderbus:1"
"""Namespace of every element; attributes have none."""

SPACE: Final = " \t\r\n"
"""White space of XML."""

T = TypeVar("T")

_IN_NAMESPACE: Final = NAMESPACE + " "
_STEP_BYTES: Final = 65_536
_SPECIAL: Final = re.compile('[\x00-\x1f"&<>\\\\\ud800-\udfff\ufffe\uffff]')
_ESCAPES: Final = {'"': "&quot;", "&": "&amp;", "<": "&lt;", ">": "&gt;", "\\": "\\\\"} | {
    character: f"&#{ord(character)};" for character in "\t\n\r"
}
_ESCAPED: Final = re.compile(r"\\(?:(\\)|u([0-9A-Fa-f]{4})|)")


class ElementBounds:
    """Bounds of one item: ``bytes_max`` of UTF-8, elements nested ``depth_max`` deep, and a number of elements."""

    __slots__ = ("bytes_max", "depth_max", "elements_max")

    def __init__(self, bytes_max: int, depth_max: int, elements_max: int) -> None:
        self.bytes_max = bytes_max
        self.depth_max = depth_max
        self.elements_max = elements_max


class ElementFault(Exception):
    """A fault at byte ``at`` of the input; the reader makes a :class:`FilterError` of it."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


class Element:
    """One element: its name, its attributes with escapes undone, its children, and its text if it has none.

    ``at`` is the byte of the input where it starts.
    """

    __slots__ = ("at", "attributes", "children", "name", "text")

    def __init__(self, name: str, attributes: Mapping[str, str], at: int) -> None:
        self.name = name
        self.attributes = attributes
        self.at = at
        self.children: list[Element] = []
        self.text = ""

    def fail(self, reason: str) -> NoReturn:
        """Raise :class:`ElementFault` at this element."""
        raise ElementFault(reason, self.at)

    def check(self, required: frozenset[str], optional: frozenset[str] = frozenset()) -> None:
        """Check that the element has attributes of these names, and no text."""
        self.check_attributes(required, optional)
        if self.text.strip(SPACE):
            self.fail(f"<{self.name}> must not contain text")

    def check_attributes(self, required: frozenset[str], optional: frozenset[str] = frozenset()) -> None:
        """Check that the element has attributes of these names."""
        given = self.attributes.keys()
        if given == required:
            return
        for name in sorted(required - given):
            self.fail(f"<{self.name}> needs the attribute '{name}'")
        for name in sorted(given - required - optional):
            self.fail(f"<{self.name}> has no attribute '{shown(name)}'")

    def only_child(self) -> Element:
        """Return the only child; raise if there is not exactly one."""
        if len(self.children) != 1:
            self.fail(f"<{self.name}> must contain one element, not {len(self.children)}")
        return self.children[0]

    def unescaped(self) -> str:
        """Return the text with escapes undone, of an element that must have no children."""
        if self.children:
            self.fail(f"<{self.name}> must contain only text")
        return _unescaped(self.text, self.at)


class ElementReader(Generic[T]):
    """Reads the root element, or with ``within`` the children of a root of that name, one after another.

    ``build`` converts each such item, and may raise :class:`ElementFault`.
    """

    def __init__(self, build: Callable[[Element], T], bounds: ElementBounds, *, within: str | None = None) -> None:
        self._build = build
        self._bounds = bounds
        self._within = within
        self._items: list[T] = []
        self._open: list[Element] = []
        self._texts: list[str] = []
        self._elements = 0
        # The part of the input that is kept begins at byte _base; expat has been given its first _given bytes.
        self._kept = bytearray()
        self._base = 0
        self._given = 0
        self._needed_from = 0
        self._parser = self._new_parser()

    def feed(self, data: bytes) -> None:
        """Continue reading; raise :class:`FilterError` if the input is wrong. Complete items are kept."""
        for start in range(0, len(data), _STEP_BYTES):
            piece = data[start : start + _STEP_BYTES]
            # Only up to the end of a tag: expat may leave an incomplete token for later.
            end_of_tag = piece.rfind(b">") + 1
            known = len(self._kept)
            self._kept += piece
            if end_of_tag:
                self._parse(known + end_of_tag)
            self._forget()
            if len(self._kept) > self._bounds.bytes_max:
                self._refuse(self._too_long(), self._needed_from)

    def close(self) -> None:
        """Read the end; raise :class:`FilterError` if it comes too early."""
        self._parse(len(self._kept), final=True)

    def take(self) -> list[T]:
        """Return the items that are complete by now, each once."""
        items, self._items = self._items, []
        return items

    def _new_parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate("utf-8", " ")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._texts.append
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.ProcessingInstructionHandler = self._refuse_instruction
        return parser

    def _parse(self, end: int, *, final: bool = False) -> None:
        data = bytes(self._kept[self._given : end])
        self._given = end
        try:
            self._parser.Parse(data, final)
        except expat.ExpatError as error:
            self._refuse(_reason(error), self._parser.ErrorByteIndex)
        except ElementFault as fault:
            self._refuse(fault.reason, fault.at)

    def _forget(self) -> None:
        """Discard text that no error message can need any more: the items before the open one."""
        done = self._needed_from - self._base
        if done > 0:
            del self._kept[:done]
            self._base += done
            self._given -= done

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        at = self._parser.CurrentByteIndex
        if not name.startswith(_IN_NAMESPACE):
            raise ElementFault(f"<{shown(name.rpartition(' ')[2])}> is not in the namespace {NAMESPACE}", at)
        for key, value in attributes.items():
            if "\\" in value:
                attributes[key] = _unescaped(value, at)
        element = Element(name[len(_IN_NAMESPACE) :], attributes, at)
        if self._open:
            self._check_blank(at)
            self._open[-1].children.append(element)
        elif self._within is not None:
            self._check_root(element)
        if self._within is not None and len(self._open) == 1:
            self._needed_from = at
            self._elements = 0
        self._open.append(element)
        self._elements += 1
        if self._elements > self._bounds.elements_max:
            raise ElementFault(f"more than {self._bounds.elements_max} elements", at)
        if len(self._open) > self._bounds.depth_max + (self._within is not None):
            raise ElementFault(f"nested more than {self._bounds.depth_max} deep", at)

    def _end(self, name: str) -> None:
        element = self._open.pop()
        here = self._parser.CurrentByteIndex
        depth = len(self._open) - (self._within is not None)
        if element.children or depth < 0:
            self._check_blank(here)
        else:
            element.text = "".join(self._texts)
            self._texts.clear()
        if depth == 0:
            if here - element.at > self._bounds.bytes_max:
                raise ElementFault(self._too_long(), element.at)
            self._items.append(self._build(element))
            if self._open:
                self._needed_from = here
                self._open[-1].children.clear()

    def _check_root(self, root: Element) -> None:
        if root.name != self._within:
            root.fail(f"expected <{self._within}>, found <{shown(root.name)}>")
        root.check(frozenset())

    def _check_blank(self, at: int) -> None:
        if self._texts:
            if "".join(self._texts).strip(SPACE):
                raise ElementFault("text beside elements", at)
            self._texts.clear()

    def _too_long(self) -> str:
        return f"longer than {self._bounds.bytes_max} bytes"

    def _refuse_doctype(self, *_: object) -> NoReturn:
        raise ElementFault("document types are not supported", self._parser.CurrentByteIndex)

    def _refuse_instruction(self, *_: object) -> NoReturn:
        raise ElementFault("processing instructions are not supported", self._parser.CurrentByteIndex)

    def _refuse(self, reason: str, at: int) -> NoReturn:
        """Raise :class:`FilterError` with the text of the open item, and the character of byte ``at``."""
        start = max(self._needed_from - self._base, 0)
        text = self._kept[start:].decode("utf-8", "replace")
        before = self._kept[start : max(at - self._base, start)].decode("utf-8", "replace")
        raise FilterError(reason, text, len(before)) from None


def escaped(text: str) -> str:
    """Return ``text`` as written between tags or quotes; raise :class:`ValueError` if no escape can represent it."""
    return _SPECIAL.sub(_escape, text) if _SPECIAL.search(text) else text


def shown(text: str) -> str:
    """Return ``text`` as an error message shows it, cut if it is long."""
    return text if len(text) <= 40 else text[:37] + "..."


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":
        raise ValueError("half a character (a lone surrogate)")
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _unescaped(text: str, at: int) -> str:
    if "\\" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        backslash, digits = match.groups()
        if not backslash and not digits:
            raise ElementFault("unknown escape; write \\\\ for a backslash, \\u0000 for a character", at)
        if digits and digits[0] in "Dd" and digits[1] in "89ABCDEFabcdef":
            raise ElementFault("half a character (a lone surrogate)", at)
        return backslash or chr(int(digits, 16))

    return _ESCAPED.sub(replacement, text)


def _reason(error: expat.ExpatError) -> str:
    reason = expat.ErrorString(error.code)
    return f"not XML: {reason or 'unreadable'}"
