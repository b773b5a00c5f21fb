"""Parser from text to tree: recursive descent over a list of tokens.

Positions of tokens are computed only for an error message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NoReturn, cast

from wanderbus import limits
from wanderbus.errors import FilterError
from wanderbus.filters.ast import (
    EVERYTHING,
    NOTHING,
    And,
    Clause,
    Exists,
    Node,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
    Quantified,
)
from wanderbus.filters.eci.literals import number_or_date, shown, unquoted
from wanderbus.filters.eci.words import MATCHING, ORDERING, RESERVED, SIGNS, WORD, WORD_OPERATORS
from wanderbus.filters.eci.writing import write

_GOOD: Final = rf"""
    ==|!=|<=|>=|<|>|\(|\)|,
  | "[^"\\]*+(?:\\.[^"\\]*+)*+"
  | '[^'\\]*+(?:\\.[^'\\]*+)*+'
  | `[^`\\]*+(?:\\.[^`\\]*+)*+`
  | [+-]?\.?[0-9][\w\-.:+/@\#$%]*+
  | [+-]inf\b
  | {WORD}
"""
# Text that is no token is one token together with all that follows it, which is never read. No step goes back over
# earlier text, so the time is linear for every text; trailing blanks are cut first.
_TOKENS: Final = re.compile(rf"\s*(?:({_GOOD}|\S.*+))", re.VERBOSE | re.DOTALL)
_TOKEN: Final = re.compile(_GOOD, re.VERBOSE | re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_AND: Final = frozenset({"and", "And", "aNd", "anD", "ANd", "AnD", "aND", "AND"})
_OR: Final = frozenset({"or", "Or", "oR", "OR"})
_NOT: Final = frozenset({"not", "Not", "nOt", "noT", "NOt", "NoT", "nOT", "NOT"})
_NAMELESS: Final = {"everything": EVERYTHING, "nothing": NOTHING}
_BAD: Final = "?"
"""Marker of text that is no token; nothing accepts it."""
_HINTS: Final = {
    "=": "'=' is not a comparison; write '=='",
    "&": "write 'and'",
    "|": "write 'or'",
    "!": "write 'not' or '!='",
    '"': "this quote is never closed",
    "'": "this quote is never closed",
    "`": "this backquote is never closed",
}
_QUOTES: Final = frozenset("\"'")
_STARTS_OF_NUMBERS: Final = frozenset("+-.0123456789")
_LONGER_IN_FULL: Final = 8
"""The canonical text is at most this many times as long as the original."""

_Leaf = Callable[[], Any]
"""Reader of operands: questions in a filter, tests in a clause."""


class _Ands(list[Any]):
    """The operands of an `and` that may become part of a wider one."""


class _Ors(list[Any]):
    """The operands of an `or` that may become part of a wider one."""


def read(text: str) -> Node:
    """Return the tree of ``text``.

    Raises :class:`FilterError` with the position of the fault, also if a bound of :mod:`wanderbus.limits` is exceeded.
    """
    longest = limits.EXPRESSION_CHARACTERS_MAX
    if len(text) > longest:
        raise FilterError(f"an expression has at most {longest} characters", text, longest)
    if not text.isascii() and (lone := _SURROGATE.search(text)):
        raise FilterError("half a character (a lone surrogate)", text, lone.start())
    node = _Reader(text).filter()
    if len(text) * _LONGER_IN_FULL > longest and len(write(node)) > longest:
        raise FilterError(f"an expression has at most {longest} characters once written in full", text, 0)
    return node


class _Reader:
    """Reads one text; ``_at`` is the token to read next. A tuple of a name and a test is a question without ``any``."""

    __slots__ = ("_at", "_depth", "_text", "_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = _TOKENS.findall(text.rstrip())
        if self._tokens and not _TOKEN.fullmatch(self._tokens[-1]):
            self._tokens[-1] = _BAD
        self._tokens.append("")
        self._at = 0
        self._depth = 0

    def filter(self) -> Node:
        if self._tokens[0] == "":
            return EVERYTHING
        node: Node = _closed(self._disjunction(self._question))
        if self._tokens[self._at] == ")":
            self._fail("this ) closes nothing")
        if self._tokens[self._at] != "":
            self._fail("expected 'and', 'or' or the end")
        return node

    # Common to filters and clauses ------------------------------------------------------------------------------------

    def _disjunction(self, leaf: _Leaf) -> Any:
        part = self._conjunction(leaf)
        if self._tokens[self._at] not in _OR:
            return part
        parts = _Ors()
        while True:
            if type(part) is _Ors:
                parts += part
            else:
                parts.append(_closed(part))
            if self._tokens[self._at] not in _OR:
                return parts
            self._at += 1
            part = self._conjunction(leaf)

    def _conjunction(self, leaf: _Leaf) -> Any:
        part = self._negation(leaf)
        if self._tokens[self._at] not in _AND:
            return part
        parts = _Ands()
        while True:
            if type(part) is _Ands:
                parts += part
            else:
                parts.append(part)
            if self._tokens[self._at] not in _AND:
                return parts
            self._at += 1
            part = self._negation(leaf)

    def _negation(self, leaf: _Leaf) -> Any:
        token = self._tokens[self._at]
        if token == "(":
            self._deeper()
            part = self._parenthesised(leaf)
        elif token in _NOT and not (leaf == self._test and self._at_operator()):
            self._deeper()
            part = Not(_closed(self._negation(leaf)))
        elif (token in _AND or token in _OR) and self._tokens[self._at + 1] == "(":
            self._deeper(2)
            part = self._listed(And if token in _AND else Or, leaf)
        else:
            return leaf()
        self._depth -= 1
        return part

    def _deeper(self, tokens: int = 1) -> None:
        """Skip the ``tokens`` that open another level."""
        self._depth += 1
        if self._depth > limits.EXPRESSION_DEPTH_MAX:
            self._fail(f"nested more than {limits.EXPRESSION_DEPTH_MAX} deep")
        self._at += tokens

    def _parenthesised(self, leaf: _Leaf) -> Any:
        opening = self._at - 1
        part = self._disjunction(leaf)
        self._close(opening, "'and', 'or'")
        return part

    def _listed(self, kind: type[And[Any]] | type[Or[Any]], leaf: _Leaf) -> Any:
        return kind(self._list(lambda: _closed(self._disjunction(leaf)), "'and', 'or', ','"))

    def _list(self, item: Callable[[], Any], others: str) -> tuple[Any, ...]:
        """Read items separated by commas, up to the closing parenthesis; the opening one has been read."""
        opening = self._at - 1
        items: list[Any] = []
        if self._tokens[self._at] != ")":
            items.append(item())
            while self._tokens[self._at] == ",":
                self._at += 1
                items.append(item())
        self._close(opening, others)
        return tuple(items)

    def _close(self, opening: int, others: str) -> None:
        token = self._tokens[self._at]
        if token == "":
            self._fail("this ( is never closed", opening)
        if token != ")":
            self._fail(f"expected {others} or ')'")
        self._at += 1

    # Filters ---------------------------------------------------------------------------------------------------------

    def _question(self) -> Any:
        token = self._tokens[self._at]
        if not _is_name(token):
            expected = f"an attribute's name, found {shown(token)}" if token else "a comparison, found the end"
            self._fail(f"expected {expected}")
        name = self._name()
        if self._tokens[self._at] in SIGNS or self._at_operator() or token[0] == "`":
            return name, self._test(token)
        match token.lower():
            case "everything" | "nothing" as word:
                return _NAMELESS[word]
            case "exists" if _is_name(self._tokens[self._at]):
                return Exists(self._name())
            case ("any" | "all") as quantifier if _is_name(self._tokens[self._at]):
                return Quantified(quantifier, self._name(), self._condition())
            case "cesql" if self._tokens[self._at][:1] in _QUOTES:
                return self._cesql()
            case _:
                return self._test(token)  # it raises the error

    def _name(self) -> str:
        token = self._tokens[self._at]
        name: str = self._made(unquoted, token) if token[0] == "`" else token
        self._at += 1
        return name

    def _cesql(self) -> Node:
        from wanderbus.filters import cesql  # imported here, so that only callers that use it pay for loading it

        token = self._tokens[self._at]
        text = self._made(unquoted, token)
        try:
            node = cesql.read(text)
        except FilterError as error:
            inside = 0 if error.position is None or "\\" in token else 1 + error.position
            self._fail(f"in this expression of cesql: {error.reason}", offset=inside)
        self._at += 1
        return node

    # Clauses ---------------------------------------------------------------------------------------------------------

    def _condition(self) -> Clause:
        name = self._tokens[self._at - 1]
        if self._tokens[self._at] != "(":
            return self._test(name)
        self._deeper()
        clause: Clause = _closed(self._parenthesised(self._test))
        self._depth -= 1
        return clause

    def _at_operator(self) -> bool:
        """Return whether a test begins here with a word."""
        word = self._tokens[self._at].lower()
        return word in WORD_OPERATORS or (word == "not" and self._tokens[self._at + 1].lower() == "in")

    def _test(self, name: str | None = None) -> Clause:
        """Read a test: ``name`` is the token before it, None within a clause in parentheses."""
        sign = self._tokens[self._at]
        if sign in SIGNS:
            self._at += 1
            return Predicate(cast(Operator, sign), self._operand(sign))
        word = sign.lower()
        if word in MATCHING:
            self._at += 1
            return Predicate(cast(Operator, word), self._operand(word))
        if word == "in":
            self._at += 1
            return Predicate("in", self._operands())
        if word == "not" and self._at_operator():
            self._at += 2
            return Not(Predicate("in", self._operands()))
        if name is None and word in _NAMELESS:
            self._at += 1
            return cast(Clause, _NAMELESS[word])
        self._fail(f"expected a comparison such as '=='{'' if name is None else f' after {shown(name)}'}")

    # Operands --------------------------------------------------------------------------------------------------------

    def _operand(self, sign: str) -> Operand:
        at = self._at
        value = self._literal(sign)
        if sign in ORDERING and isinstance(value, bool):
            self._fail("true and false have no order; use '==' or '!='", at - 1)
        if sign in MATCHING and not isinstance(value, str):
            self._fail(f"'{sign}' compares text only; put {shown(self._tokens[at])} in quotes", at)
        return value

    def _operands(self) -> tuple[Operand, ...]:
        if self._tokens[self._at] != "(":
            self._fail("expected a list such as (1, 2) after 'in'")
        self._at += 1
        return self._list(lambda: self._literal(self._tokens[self._at - 1]), "','")

    def _literal(self, after: str) -> Operand:
        token = self._tokens[self._at]
        first = token[:1]
        value: Operand
        if _starts_a_word(first):
            value = self._word(token)
        elif first in _QUOTES:
            value = self._made(unquoted, token)
        elif first in _STARTS_OF_NUMBERS:
            value = self._made(number_or_date, token)
        elif after == "<" and token == ">":
            self._fail("'<>' is not a comparison; write '!='", self._at - 1)
        else:
            self._fail(f"expected a value after '{after}'")
        self._at += 1
        return value

    def _word(self, token: str) -> str | bool:
        word = token.lower()
        if word not in RESERVED:
            return token
        if word in ("and", "or", "not"):
            self._fail(f"{shown(token)} is a keyword; put it in quotes if it is a value")
        return word == "true"

    def _made(self, function: Callable[[str], Any], token: str) -> Any:
        """Return the result of ``function`` for the current ``token``."""
        try:
            return function(token)
        except FilterError as error:
            self._fail(error.reason, offset=error.position or 0)

    # Errors ----------------------------------------------------------------------------------------------------------

    def _fail(self, reason: str, token: int | None = None, offset: int = 0) -> NoReturn:
        """Raise an error at the token with this index, by default the current one, at ``offset`` in it."""
        index = self._at if token is None else token
        starts = [found.start(1) for found in _TOKENS.finditer(self._text.rstrip())]
        at = starts[index] if index < len(starts) else len(self._text)
        if self._tokens[index] is _BAD:
            character = self._text[at]
            reason = _HINTS.get(character, f"unexpected character {character!r}")
        raise FilterError(reason, self._text, at + offset)


def _starts_a_word(character: str) -> bool:
    return character == "_" or (character.isalnum() and not character.isdecimal())


def _is_name(token: str) -> bool:
    return token[:1] == "`" or (_starts_a_word(token[:1]) and token.lower() not in RESERVED)


def _closed(part: Any) -> Any:
    """Return the finished node or clause of ``part``, which nothing can extend any more."""
    kind = type(part)
    if kind is tuple:
        return Quantified("any", *part)
    if kind is _Ands:
        return _grouped(part)
    return Or(tuple(part)) if kind is _Ors else part


def _grouped(parts: _Ands) -> Any:
    """Return the `and` of ``parts``, in which the tests without ``any`` of one name form one clause."""
    tests: dict[str, list[Clause]] = {}
    operands: list[Any] = []
    for part in parts:
        if type(part) is not tuple:
            operands.append(_closed(part))
        elif part[0] in tests:
            tests[part[0]].append(part[1])
        else:
            tests[part[0]] = [part[1]]
            operands.append(part)
    for place, part in enumerate(operands):
        if type(part) is tuple:
            clauses = tests[part[0]]
            operands[place] = Quantified("any", part[0], clauses[0] if len(clauses) == 1 else And(tuple(clauses)))
    return operands[0] if len(operands) == 1 else And(tuple(operands))
