"""Grammars in EBNF as the documentation writes them: read, recognized and generated from.

A rule in lower case is made of tokens with free blanks between; a rule in upper case is one token, a regular
expression between slashes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

_SYMBOL = re.compile(r"""\s*("[^"]*"|'[^']*'|[A-Za-z]+|[][(){}|])""")


class Part(NamedTuple):
    """A piece of a rule: ``kind`` is text, name, sequence, choice or repeat; a repeat of ``most`` 1 is optional."""

    kind: str
    text: str = ""
    parts: tuple[Part, ...] = ()
    most: int = 0


class Grammar:
    """The rules of one block, the first is the whole; no token is one of ``reserved``, in any case."""

    def __init__(self, text: str, reserved: AbstractSet[str] = frozenset()) -> None:
        self.reserved = reserved
        self.rules: dict[str, Part] = {}
        self.tokens: dict[str, re.Pattern[str]] = {}
        for rule in re.split(r";\s*(?:\n|$)", text.strip()):
            name, _, body = (each.strip() for each in rule.partition("="))
            if name.isupper():
                self.tokens[name] = re.compile(body[1:-1].replace("\\/", "/"), re.DOTALL)
            elif name:
                self.rules[name] = _Body(body).whole()
        self.start = next(iter(self.rules))
        self._depths: dict[Part, int] = {}

    def recognizes(self, text: str) -> bool:
        """Return whether ``text`` is a sentence."""
        return _Recognizer(self, text).whole()

    def sentence(self, chance: random.Random, tokens: Mapping[str, Sequence[str]], depth_max: int = 12) -> str:
        """Return a sentence drawn by ``chance``, with ``tokens`` of each upper-case rule to draw from."""

        def draw(part: Part, depth: int) -> str:
            match part.kind:
                case "text":
                    return part.text
                case "name" if part.text in self.tokens:
                    return chance.choice(tokens[part.text])
                case "name":
                    return draw(self.rules[part.text], depth + 1)
                case "sequence":
                    return " ".join(draw(each, depth) for each in part.parts)
                case "choice":
                    fit = [each for each in part.parts if self._depth(each) <= max(depth_max - depth, 0)]
                    return draw(chance.choice(fit or [min(part.parts, key=self._depth)]), depth)
                case _:
                    count = chance.randint(0, part.most or 2) if depth < depth_max else 0
                    return " ".join(draw(part.parts[0], depth) for _ in range(count))

        return draw(Part("name", self.start), 0)

    def _depth(self, part: Part) -> int:
        if part not in self._depths:
            self._depths[part] = self._least(part)
        return self._depths[part]

    def _least(self, part: Part, seen: tuple[str, ...] = ()) -> int:
        """Return how many rules deep ``part`` is at least."""
        match part.kind:
            case "name" if part.text in seen:
                return 99
            case "name" if part.text in self.rules:
                return 1 + self._least(self.rules[part.text], (*seen, part.text))
            case "sequence":
                return max((self._least(each, seen) for each in part.parts), default=0)
            case "choice":
                return min(self._least(each, seen) for each in part.parts)
            case _:
                return 0


class _Body:
    """Reads the right side of one rule."""

    def __init__(self, text: str) -> None:
        self._symbols = _SYMBOL.findall(text)
        assert re.fullmatch(r"\s*", _SYMBOL.sub("", text)), f"no EBNF: {_SYMBOL.sub('', text)!r}"
        self._at = 0

    def whole(self) -> Part:
        part = self._choice()
        assert self._at == len(self._symbols), self._symbols[self._at :]
        return part

    def _choice(self) -> Part:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Part("choice", parts=tuple(parts))

    def _sequence(self) -> Part:
        parts = []
        while (symbol := self._peek()) and symbol not in "|)]}":
            self._at += 1
            parts.append(self._atom(symbol))
        return parts[0] if len(parts) == 1 else Part("sequence", parts=tuple(parts))

    def _atom(self, symbol: str) -> Part:
        if symbol in "([{":
            inner = self._choice()
            self._at += 1
            return inner if symbol == "(" else Part("repeat", parts=(inner,), most=1 if symbol == "[" else 0)
        return Part("text", symbol[1:-1]) if symbol[0] in "\"'" else Part("name", symbol)

    def _peek(self) -> str:
        return self._symbols[self._at] if self._at < len(self._symbols) else ""


class _Recognizer:
    """Finds all ends that a rule may have from a place in one text; each is looked for once."""

    def __init__(self, grammar: Grammar, text: str) -> None:
        self._grammar = grammar
        self._text = text
        self._known: dict[tuple[str, int], frozenset[int]] = {}

    def whole(self) -> bool:
        return any(not self._text[end:].strip() for end in self._rule(self._grammar.start, 0))

    def _rule(self, name: str, at: int) -> frozenset[int]:
        if (name, at) not in self._known:
            self._known[name, at] = frozenset(self._ends(self._grammar.rules[name], {at}))
        return self._known[name, at]

    def _ends(self, part: Part, starts: set[int]) -> set[int]:
        match part.kind:
            case "text":
                return self._each(starts, lambda at: self._literal(part.text, at))
            case "name" if part.text in self._grammar.tokens:
                return self._each(starts, lambda at: self._token(self._grammar.tokens[part.text], at))
            case "name":
                return self._each(starts, lambda at: self._rule(part.text, at))
            case "sequence":
                for each in part.parts:
                    starts = self._ends(each, starts)
                return starts
            case "choice":
                return set().union(*(self._ends(each, starts) for each in part.parts))
            case _:
                found = fresh = starts
                while fresh:
                    fresh = self._ends(part.parts[0], fresh) - found
                    found = found | fresh
                    if part.most:
                        break
                return found

    def _each(self, starts: set[int], ends: Callable[[int], frozenset[int]]) -> set[int]:
        return set().union(*(ends(at) for at in starts))

    def _literal(self, text: str, at: int) -> frozenset[int]:
        at = self._skipped(at)
        end = at + len(text)
        return frozenset({end} if self._text[at:end].lower() == text.lower() else ())

    def _token(self, pattern: re.Pattern[str], at: int) -> frozenset[int]:
        found = pattern.match(self._text, self._skipped(at)) or pattern.match(self._text, at)
        return frozenset({found.end()} if found and found[0].lower() not in self._grammar.reserved else ())

    def _skipped(self, at: int) -> int:
        return at + len(self._text[at:]) - len(self._text[at:].lstrip())
