"""Parser from CESQL text to tree (CESQL 1.0.0, 2 and 3.6).

Precedence, highest first: calls; ``NOT`` and ``-``; ``LIKE`` and ``IN``; ``* / %``; ``+ -``; comparisons; ``AND OR
XOR``, which have one precedence. Operators of one precedence group to the left. So ``NOT a = b`` is ``(NOT a) = b``. A
sign directly before digits, where no operator may occur, is part of the integer.

In a text, a backslash before the enclosing quote stands for that quote; any other backslash is itself.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NoReturn, cast

from wanderbus import limits
from wanderbus.errors import FilterError
from wanderbus.filters.cesql import patterns
from wanderbus.filters.cesql.casting import INTEGER_MAX, INTEGER_MIN
from wanderbus.filters.cesql.tree import (
    PRECEDENCE,
    AttributeExists,
    AttributeValue,
    Expression,
    FunctionCall,
    In,
    Like,
    LiteralValue,
    Unary,
    chain,
    levels,
)

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<end>\Z)
      | (?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")
      | (?P<word>[A-Za-z0-9_]+)
      | (?P<sign><=|>=|<>|!=|[-+*/%=<>(),])
    )""",
    re.VERBOSE | re.DOTALL,
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INTEGER: Final = re.compile(r"[0-9]+")
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9]+")
_FUNCTION: Final = re.compile(r"[A-Za-z][A-Za-z_]*")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
KEYWORDS: Final = frozenset({"AND", "OR", "XOR", "NOT", "LIKE", "EXISTS", "IN", "TRUE", "FALSE"})
"""Keywords, read in any case; never the name of an attribute."""
_HINTS: Final = {
    "'": "this quote is never closed",
    '"': "this quote is never closed",
    "!": "write 'NOT' or '!='",
    "&": "write 'AND'",
    "|": "write 'OR'",
}


def read(text: str) -> Expression:
    """Return the tree of ``text``.

    Raises :class:`FilterError` with the position of the fault, also if a bound of :mod:`wanderbus.limits` is exceeded.
    """
    longest, deepest = limits.EXPRESSION_CHARACTERS_MAX, limits.EXPRESSION_DEPTH_MAX
    if len(text) > longest:
        raise FilterError(f"an expression has at most {longest} characters", text, longest)
    if lone := _SURROGATE.search(text):
        raise FilterError("half a character (a lone surrogate)", text, lone.start())
    root = _Reader(text).whole()
    nodes = list(levels(root))
    if max(deep for deep, _ in nodes) > deepest:
        raise FilterError(f"nested more than {deepest} deep", text, 0)
    sought = sum(patterns.sought(node.pattern) for _, node in nodes if isinstance(node, Like))
    if sought > limits.CESQL_SOUGHT_CHARACTERS_MAX:
        most = limits.CESQL_SOUGHT_CHARACTERS_MAX
        raise FilterError(f"the patterns of LIKE have at most {most} characters between two %", text, 0)
    return root


def unquoted(quoted: str) -> str:
    """Return the value of a text in quotes."""
    quote = quoted[0]
    return _ESCAPE.sub(lambda pair: quote if pair[1] == quote else pair[0], quoted[1:-1])


class _Token:
    """One token of the text, at a position."""

    __slots__ = ("at", "kind", "text")

    def __init__(self, kind: str, text: str, at: int) -> None:
        self.kind = kind
        """The name of a group of :data:`_TOKEN`, or ``keyword``."""
        self.text = text
        """The text as written; keywords in upper case."""
        self.at = at


class _Reader:
    """Parser by precedence climbing over one text, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._end = 0
        self._ahead = self._scan()

    def whole(self) -> Expression:
        root = self._expression(1)
        if self._ahead.text == ")":
            self._fail("this ) closes nothing")
        if self._ahead.kind != "end":
            self._fail("expected an operator or the end")
        return root

    def _expression(self, loosest: int) -> Expression:
        """Read operands and the binary operators between them that bind at least as tightly as ``loosest``."""
        self._depth += 1
        if self._depth > limits.EXPRESSION_DEPTH_MAX:
            self._fail(f"nested more than {limits.EXPRESSION_DEPTH_MAX} deep")
        left = self._suffixed(self._operand())
        level = self._precedence()
        while level >= loosest:
            steps = []
            here = level
            while level == here:
                operator = self._advance().text
                steps.append(("!=" if operator == "<>" else operator, self._expression(here + 1)))
                level = self._precedence()
            left = chain(left, steps)
        self._depth -= 1
        return left

    def _precedence(self) -> int:
        """Return the precedence of the next operator; 0 if the next token is none."""
        kind, text = self._ahead.kind, self._ahead.text
        return PRECEDENCE.get("!=" if text == "<>" else text, 0) if kind in ("sign", "keyword") else 0

    def _suffixed(self, operand: Expression) -> Expression:
        while self._ahead.kind == "keyword" and self._ahead.text in ("NOT", "LIKE", "IN"):
            negated = self._take("NOT")
            if self._take("LIKE"):
                pattern = self._ahead
                if pattern.kind != "text":
                    self._fail("the pattern of LIKE must be a text in quotes")
                self._advance()
                operand = Like(operand, unquoted(pattern.text), negated)
            elif self._take("IN"):
                opening = self._expect("(", "expected '(' and a list of values after IN")
                if self._ahead.text == ")":
                    self._fail("the list of IN must not be empty")
                operand = In(operand, self._listed(opening), negated)
            else:
                self._fail("expected LIKE or IN after NOT")
        return operand

    def _operand(self) -> Expression:
        token = self._ahead
        match token.kind, token.text:
            case "text", quoted:
                self._advance()
                return LiteralValue(unquoted(quoted))
            case "word", _:
                return self._word(self._advance())
            case "keyword", ("TRUE" | "FALSE") as word:
                self._advance()
                return LiteralValue(word == "TRUE")
            case "keyword", "EXISTS":
                self._advance()
                return AttributeExists(self._identifier("expected the name of an attribute after EXISTS"))
            case ("keyword", "NOT") | ("sign", "-" | "+"):
                return self._prefixed(self._advance())
            case "sign", "(":
                self._advance()
                inner = self._expression(1)
                self._close(token)
                return inner
            case "end", _:
                self._fail("expected a value, found the end")
        self._fail(f"expected a value, found {_shown(token)}")

    def _prefixed(self, sign: _Token) -> Expression:
        digits = self._ahead
        if sign.text != "NOT" and digits.at == sign.at + 1 and _INTEGER.fullmatch(digits.text):
            self._advance()
            return self._integer(sign.text + digits.text, sign.at)
        if sign.text == "+":
            self._fail("+ must be between two values, or directly before digits", sign)
        self._depth += 1
        if self._depth > limits.EXPRESSION_DEPTH_MAX:
            self._fail(f"nested more than {limits.EXPRESSION_DEPTH_MAX} deep")
        node = Unary(cast(Literal["NOT", "-"], sign.text), self._operand())
        self._depth -= 1
        return node

    def _word(self, word: _Token) -> Expression:
        if self._ahead.text == "(" and self._ahead.kind == "sign":
            if not _FUNCTION.fullmatch(word.text):
                self._fail(f"{_shown(word)} is not a function name", word)
            return FunctionCall(word.text.upper(), self._listed(self._advance()))
        if _INTEGER.fullmatch(word.text):
            return self._integer(word.text, word.at)
        if not _IDENTIFIER.fullmatch(word.text):
            self._fail(f"{_shown(word)} is not an attribute name (letters and digits only)", word)
        return AttributeValue(word.text)

    def _integer(self, digits: str, at: int) -> LiteralValue:
        # Python refuses to convert thousands of digits.
        significant = digits.lstrip("+-").lstrip("0") or "0"
        size = int(significant) if len(significant) <= 10 else INTEGER_MAX + 2
        value = -size if digits.startswith("-") else size
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            raise FilterError("this integer is beyond 32 bits", self._text, at)
        return LiteralValue(value)

    def _listed(self, opening: _Token) -> tuple[Expression, ...]:
        """Read the list between ``opening`` and its closing parenthesis."""
        items: list[Expression] = []
        if self._ahead.text != ")":
            items.append(self._expression(1))
            while self._take(","):
                items.append(self._expression(1))
        self._close(opening)
        return tuple(items)

    def _identifier(self, expected: str) -> str:
        token = self._ahead
        if token.kind != "word" or not _IDENTIFIER.fullmatch(token.text) or _INTEGER.fullmatch(token.text):
            self._fail(expected)
        return self._advance().text

    def _close(self, opening: _Token) -> None:
        if self._ahead.kind == "end":
            self._fail("this ( is never closed", opening)
        self._expect(")", f"expected an operator or ')', found {_shown(self._ahead)}")

    def _expect(self, sign: str, reason: str) -> _Token:
        if self._ahead.kind != "sign" or self._ahead.text != sign:
            self._fail(reason)
        return self._advance()

    def _take(self, text: str) -> bool:
        """Skip ``text``, a keyword or a sign, if it is next."""
        if self._ahead.kind not in ("keyword", "sign") or self._ahead.text != text:
            return False
        self._advance()
        return True

    def _advance(self) -> _Token:
        token, self._ahead = self._ahead, self._scan()
        return token

    def _scan(self) -> _Token:
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            self._fail_to_scan()
        self._end = match.end()
        kind = cast(str, match.lastgroup)
        text, at = match[kind], match.start(kind)
        if kind == "word" and text.upper() in KEYWORDS:
            return _Token("keyword", text.upper(), at)
        return _Token(kind, text, at)

    def _fail_to_scan(self) -> NoReturn:
        rest = self._text[self._end :]
        at = self._end + len(rest) - len(rest.lstrip(" \t\r\n"))
        character = self._text[at]
        raise FilterError(_HINTS.get(character, f"unexpected character {character!r}"), self._text, at)

    def _fail(self, reason: str, token: _Token | None = None) -> NoReturn:
        raise FilterError(reason, self._text, (token or self._ahead).at)


def _shown(token: _Token) -> str:
    """Return the token as an error message shows it, cut if it is long."""
    text = token.text if len(token.text) <= 40 else token.text[:37] + "..."
    return text if token.kind == "text" else f"'{text}'"
