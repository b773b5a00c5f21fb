"""The subscription language of ECI, read and written (SPEC A-06, X3).

::

    expression  = disjunction | blank                     blank: every event of the subject
    disjunction = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation    = "not" negation | "(" disjunction ")" | comparison
    comparison  = name ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) literal
    literal     = number | "true" | "false" | "quoted" | 'quoted' | word

Keywords are read in any case. A name or an unquoted word starts with a letter or ``_`` and goes on with letters,
digits and ``_ - . : + / @ # $ %``; an unquoted word is a string. In quotes, ``\\`` goes before a quote, ``\\``,
``n``, ``r`` or ``t``. What starts with a digit or a sign must be a number: dates are kept for later.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple, NoReturn, cast

from wanderbus import limits
from wanderbus.errors import FilterError
from wanderbus.filters.ast import EVERYTHING, And, Comparison, Node, Not, Operand, Operator, Or

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<end>\Z)
      | (?P<punctuation>==|!=|<=|>=|<|>|\(|\))
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<number>[+-]?\.?[0-9][\w\-.:+/@\#$%]*)
      | (?P<word>[^\W\d][\w\-.:+/@\#$%]*)
    )""",
    re.VERBOSE | re.DOTALL,
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_KEYWORDS: Final = frozenset({"and", "or", "not", "true", "false"})
_OPERATORS: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\"}
_HINTS: Final = {
    "=": "'=' is not a comparison; write '=='",
    "&": "write 'and'",
    "|": "write 'or'",
    "!": "write 'not' or '!='",
    '"': "this quote is never closed",
    "'": "this quote is never closed",
}


def read(text: str) -> Node:
    """Return the tree of ``text``.

    Raises :class:`FilterError` with the place of the fault, also where a bound of :mod:`wanderbus.limits` is passed.
    """
    longest = limits.EXPRESSION_CHARACTERS_MAX
    if len(text) > longest:
        raise FilterError(f"an expression has at most {longest} characters", text, longest)
    if lone := _SURROGATE.search(text):
        raise FilterError("half a character (a lone surrogate)", text, lone.start())
    node = _Reader(text).expression()
    if len(write(node)) > longest:
        raise FilterError(f"an expression has at most {longest} characters once written in full", text, 0)
    return node


def write(node: Node) -> str:
    """Return the canonical text of ``node``: every string quoted, no parenthesis that changes nothing."""
    match node:
        case Comparison(attribute=attribute, operator=sign, value=value):
            return f"{attribute} {sign} {_write_literal(value)}"
        case Not(operand=operand):
            return f"not {_write_within(operand, (And, Or))}"
        case And(operands=operands):
            return " and ".join(_write_within(operand, (Or,)) for operand in operands)
        case Or(operands=operands):
            return " or ".join(write(operand) for operand in operands)


def _write_within(node: Node, looser: tuple[type, ...]) -> str:
    return f"({write(node)})" if isinstance(node, looser) else write(node)


def _write_literal(value: Operand) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'
        case _:
            return repr(value)


class _Token(NamedTuple):
    kind: str
    """``keyword``, or the name of a group of :data:`_TOKEN`."""

    text: str
    at: int


class _Reader:
    """Recursive descent over one text, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._end = 0
        self._ahead = self._scan()

    def expression(self) -> Node:
        if self._ahead.kind == "end":
            return EVERYTHING
        node = self._disjunction()
        if self._ahead.text == ")":
            self._fail("this ) closes nothing")
        if self._ahead.kind != "end":
            self._fail("expected 'and', 'or' or the end")
        return node

    def _disjunction(self) -> Node:
        operands = [self._conjunction()]
        while self._take("or"):
            operands.append(self._conjunction())
        return operands[0] if len(operands) == 1 else Or(_flat(Or, operands))

    def _conjunction(self) -> Node:
        operands = [self._negation()]
        while self._take("and"):
            operands.append(self._negation())
        return operands[0] if len(operands) == 1 else And(_flat(And, operands))

    def _negation(self) -> Node:
        token = self._ahead
        if not (self._take("not") or self._take("(")):
            return self._comparison()
        self._depth += 1
        if self._depth > limits.EXPRESSION_DEPTH_MAX:
            self._fail(f"nested more than {limits.EXPRESSION_DEPTH_MAX} deep", token)
        node = Not(self._negation()) if token.text != "(" else self._parenthesised(token)
        self._depth -= 1
        return node

    def _parenthesised(self, opening: _Token) -> Node:
        node = self._disjunction()
        if self._ahead.kind == "end":
            self._fail("this ( is never closed", opening)
        if not self._take(")"):
            self._fail("expected 'and', 'or' or ')'")
        return node

    def _comparison(self) -> Node:
        name = self._ahead
        if name.kind == "end":
            self._fail("expected a comparison, found the end")
        if name.kind != "word":
            self._fail(f"expected an attribute's name, found {_shown(name)}")
        self._advance()
        sign = self._ahead
        if sign.text not in _OPERATORS:
            self._fail(f"expected a comparison such as '==' after {_shown(name)}")
        self._advance()
        value = self._literal(sign)
        if isinstance(value, bool) and sign.text not in ("==", "!="):
            self._fail("true and false have no order; use '==' or '!='", sign)
        return Comparison(name.text, cast(Operator, sign.text), value)

    def _literal(self, sign: _Token) -> Operand:
        token = self._ahead
        match token.kind, token.text.lower():
            case "string", _:
                value: Operand = self._unquoted(token)
            case "number", _:
                value = self._number(token)
            case "word", _:
                value = token.text
            case "keyword", ("true" | "false") as word:
                value = word == "true"
            case "keyword", _:
                self._fail(f"{_shown(token)} is a keyword; put it in quotes if it is a value")
            case _:
                self._fail(f"expected a value after '{sign.text}'")
        self._advance()
        return value

    def _number(self, token: _Token) -> int | float:
        if _INTEGER.fullmatch(token.text):
            # Python refuses to read thousands of digits, and no event holds more than 64 bits.
            digits = token.text.lstrip("+-").lstrip("0") or "0"
            number = int(digits) if len(digits) < 20 else 2**64
            number = -number if token.text.startswith("-") else number
            if not -(2**63) <= number < 2**63:
                self._fail("this integer is beyond 64 bits", token)
            return number
        if not _FLOAT.fullmatch(token.text):
            self._fail(f"{_shown(token)} is not a number; put it in quotes if it is text", token)
        value = float(token.text)
        if math.isinf(value):
            self._fail("this number is too large", token)
        return value

    def _unquoted(self, token: _Token) -> str:
        parts: list[str] = []
        at, last = 1, len(token.text) - 1
        while (slash := token.text.find("\\", at, last)) >= 0:
            escaped = token.text[slash + 1]
            if escaped not in _ESCAPES:
                raise FilterError(
                    f"unknown escape \\{escaped}; write \\\\ for a backslash", self._text, token.at + slash
                )
            parts += token.text[at:slash], _ESCAPES[escaped]
            at = slash + 2
        return "".join(parts) + token.text[at:last]

    def _take(self, word: str) -> bool:
        """Step over ``word`` if it is next: a keyword or a parenthesis."""
        token = self._ahead
        if token.kind not in ("keyword", "punctuation") or token.text.lower() != word:
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        self._ahead = self._scan()

    def _scan(self) -> _Token:
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            self._fail_to_scan()
        self._end = match.end()
        kind = cast(str, match.lastgroup)
        text, at = match[kind], match.start(kind)
        if kind == "word" and text.lower() in _KEYWORDS:
            kind = "keyword"
        return _Token(kind, text, at)

    def _fail_to_scan(self) -> NoReturn:
        rest = self._text[self._end :]
        at = self._end + len(rest) - len(rest.lstrip())
        character = self._text[at]
        raise FilterError(_HINTS.get(character, f"unexpected character {character!r}"), self._text, at)

    def _fail(self, reason: str, token: _Token | None = None) -> NoReturn:
        raise FilterError(reason, self._text, (token or self._ahead).at)


def _flat(kind: type[And] | type[Or], operands: list[Node]) -> tuple[Node, ...]:
    """Return ``operands`` with those of the same ``kind`` opened: a and (b and c) is a and b and c."""
    flat: list[Node] = []
    for operand in operands:
        flat.extend(operand.operands if isinstance(operand, kind) else (operand,))
    return tuple(flat)


def _shown(token: _Token) -> str:
    """Return the token as an error message shows it, cut where it is long."""
    text = token.text if len(token.text) <= 40 else token.text[:37] + "..."
    return text if token.kind == "string" else f"'{text}'"
