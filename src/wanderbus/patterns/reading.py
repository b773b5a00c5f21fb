"""Reader of a pattern: from text to :class:`wanderbus.patterns.tree.Declaration` (SPEC T-07, S-06).

The grammar is in docs/patterns.md; a test holds it to this reader.
"""

from __future__ import annotations

from typing import Any, Final

from wanderbus import limits
from wanderbus.errors import PatternError
from wanderbus.filters import LANGUAGES, parse
from wanderbus.patterns.expression_reading import ExpressionReader
from wanderbus.patterns.scanning import CLAUSES, Scanner
from wanderbus.patterns.tree import (
    Absent,
    Both,
    Declaration,
    Either,
    Expression,
    Leaf,
    Part,
    Reference,
    Selection,
    Step,
    Take,
    Then,
    TimeSource,
)
from wanderbus.subscription import EVERY_SUBJECT

STEPS_MAX: Final = 32
"""Steps of one pattern."""

REPETITIONS_MAX: Final = 1_000
"""Largest bound of a repetition."""

KEYS_MAX: Final = 8
"""Attributes of a key."""

_ON_RECEIPT: Final[tuple[TimeSource, str | None, int]] = ("receipt", None, 0)
_DEFAULT_NAME: Final = "pattern"


def read(text: str) -> Declaration:
    """Return the declaration of ``text``; raise :class:`PatternError`, whose position is in ``text``."""
    longest = limits.EXPRESSION_CHARACTERS_MAX
    if len(text) > longest:
        raise PatternError(f"a pattern has at most {longest} characters", text, longest)
    return _Reader(text).declaration()


class _Reader:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        self._scanner = Scanner(text)
        self._places: dict[str, int] = {}
        self._steps: list[Step] = []
        self._positions: list[int] = []
        self._references: list[Reference] = []
        self._expressions = ExpressionReader(self._scanner, self._places)
        self._depth = 0

    def declaration(self) -> Declaration:
        scanner = self._scanner
        name = scanner.name("the pattern's name") if scanner.accept("pattern") else _DEFAULT_NAME
        keys = self._keys() if scanner.accept("by") else ()
        scanner.expect("match", " and the steps" if keys else " or 'by'")
        root = self._choice()
        clauses = self._clauses()
        if "within" not in clauses:
            scanner.fail("expected 'within' and a duration: every pattern has a longest time")
        selection = self._selection(clauses)
        source, attribute, lateness_us = clauses.get("on", _ON_RECEIPT)
        subject, emitted = clauses.get("emit", (name, ()))
        return Declaration(
            text=scanner.text,
            name=name,
            keys=keys,
            steps=tuple(self._steps),
            root=root,
            within_us=clauses["within"],
            time_source=source,
            time_attribute=attribute,
            lateness_us=lateness_us,
            selection=selection,
            subject=subject,
            emitted=emitted,
            positions=tuple(self._positions),
            references=tuple(self._references),
        )

    def _keys(self) -> tuple[str, ...]:
        keys = [self._scanner.attribute()]
        while self._scanner.accept(","):
            position = self._scanner.position
            keys.append(self._scanner.attribute())
            if keys[-1] in keys[:-1] or len(keys) > KEYS_MAX:
                self._scanner.fail(f"a key has at most {KEYS_MAX} attributes, each once", position)
        return tuple(keys)

    # Steps ------------------------------------------------------------------------------------------------------------

    def _choice(self) -> Part:
        """Read sequences joined by ``or``, or by ``and``."""
        parts = [self._sequence()]
        word = self._scanner.token.lower()
        if word not in ("or", "and"):
            return parts[0]
        while self._scanner.accept(word):
            parts.append(self._sequence())
        if self._scanner.is_word("or", "and"):
            self._scanner.fail("put parentheses around what 'or' joins and what 'and' joins")
        return Either(tuple(parts)) if word == "or" else Both(tuple(parts))

    def _sequence(self) -> Part:
        parts, is_next = [self._part()], []
        while self._scanner.accept("then"):
            position = self._scanner.position
            is_next.append(self._scanner.accept("next"))
            part = self._part()
            if is_next[-1] and (isinstance(part, Absent) or isinstance(parts[-1], Absent)):
                self._scanner.fail(
                    "no event lies before the next one: 'not' and 'then next' exclude each other", position
                )
            parts.append(part)
        return parts[0] if len(parts) == 1 else Then(tuple(parts), tuple(is_next))

    def _part(self) -> Part:
        scanner = self._scanner
        if scanner.token == "(":
            opening = scanner.expect("(")
            self._depth += 1
            if self._depth > limits.EXPRESSION_DEPTH_MAX:
                scanner.fail(f"nested more than {limits.EXPRESSION_DEPTH_MAX} deep")
            part = self._choice()
            self._depth -= 1
            if not scanner.token:
                scanner.fail("this ( is never closed", opening)
            scanner.expect(")")
            if scanner.token == "{":
                scanner.fail("only a step can be repeated: write the repetition behind its name")
            return part
        is_negated = scanner.accept("not")
        step = self._step(is_negated)
        return Absent(step) if is_negated else Take(step)

    def _step(self, is_negated: bool) -> int:
        scanner, position = self._scanner, self._scanner.position
        if scanner.token == "(" and is_negated:
            scanner.fail("'not' stands before a single step: 'not NAME: ...'")
        name = scanner.name("the name of a step")
        if name in self._places:
            scanner.fail(f"there are two steps '{name}'; give each its own name", position)
        if len(self._steps) == STEPS_MAX:
            scanner.fail(f"a pattern has at most {STEPS_MAX} steps", position)
        repetition = scanner.position
        least, most = self._repetition() if scanner.token == "{" else (1, 1)
        if is_negated and (least, most) != (1, 1):
            scanner.fail("a step behind 'not' cannot be repeated", repetition)
        scanner.expect(":", " and the events of the step")
        place = len(self._steps)
        leaf = self._leaf()
        self._places[name] = place
        where = self._where(place) if scanner.accept("where") else None
        self._steps.append(Step(name, leaf, where, least, most, is_negated))
        self._positions.append(position)
        return place

    def _repetition(self) -> tuple[int, int | None]:
        """Read ``{n}``, ``{n,m}`` or ``{n,}``."""
        scanner, position = self._scanner, self._scanner.position
        scanner.expect("{")
        least = scanner.whole_number()
        most: int | None = least
        if scanner.accept(","):
            most = None if scanner.token == "}" else scanner.whole_number()
        scanner.expect("}")
        if max(least, most or 0) > REPETITIONS_MAX or most == 0 or (most is not None and most < least):
            scanner.fail(
                f"a repetition is {{n}}, {{n,m}} or {{n,}}, n up to m, m from 1 to {REPETITIONS_MAX}", position
            )
        return least, most

    def _leaf(self) -> Leaf:
        scanner = self._scanner
        subject = EVERY_SUBJECT
        if scanner.accept("*"):
            pass
        elif not (scanner.token == "(" or self._is_language()):
            subject = scanner.subject()
        if scanner.token == "(":
            return Leaf(subject, scanner.parenthesised_filter())
        if self._is_language():
            return Leaf(subject, scanner.bracketed_filter(scanner.advance().lower()))
        return Leaf(subject, parse(""))

    def _is_language(self) -> bool:
        """Return whether a filter in brackets follows."""
        scanner = self._scanner
        rest = scanner.text[scanner.position + len(scanner.token) :].lstrip()
        if not rest.startswith("[["):
            return False
        return scanner.is_word(*LANGUAGES)

    def _where(self, step: int) -> Expression:
        if self._scanner.token != "(":
            self._scanner.fail("put the condition behind 'where' in parentheses")
        scanner, opening = self._scanner, self._scanner.position
        scanner.advance()
        condition = self._expression(step)
        if not scanner.token:
            scanner.fail("this ( is never closed", opening)
        if not scanner.accept(")"):
            scanner.fail(f"expected an operator or ')', found {scanner.shown()}")
        return condition

    def _expression(self, owner: int | None) -> Expression:
        """Read the condition of the step ``owner``, or with None a value of the detection."""
        before = len(self._expressions.references)
        found = self._expressions.read()
        references = self._expressions.references[before:]
        self._references += [Reference(owner, step, position) for step, position in references]
        return found

    # Clauses ----------------------------------------------------------------------------------------------------------

    def _clauses(self) -> dict[str, Any]:
        scanner = self._scanner
        read: dict[str, Any] = {}
        while scanner.token:
            word, position = scanner.token.lower(), scanner.position
            if word not in CLAUSES:
                expected = "'then', " if not read else ""
                scanner.fail(f"expected {expected}{', '.join(CLAUSES)} or the end, found {scanner.shown()}")
            if word in read:
                scanner.fail(f"'{word}' is given twice")
            scanner.advance()
            read[word] = getattr(self, f"_{word}")()
            read[f"{word} position"] = position
        return read

    def _within(self) -> int:
        return self._scanner.duration_us()

    def _on(self) -> tuple[str, str | None, int]:
        scanner = self._scanner
        if not scanner.is_word("receipt", "publication", "event"):
            scanner.fail(f"expected 'receipt time', 'publication time' or 'event time NAME', found {scanner.shown()}")
        source = scanner.advance().lower()
        scanner.expect("time")
        attribute = scanner.attribute() if source == "event" and not scanner.is_word("lateness") else None
        if source == "event" and attribute is None:
            scanner.fail("expected the attribute that has the time, of the type Date")
        lateness_us = scanner.duration_us() if scanner.accept("lateness") else 0
        return source, attribute, lateness_us

    def _select(self) -> str:
        if not self._scanner.is_word("first", "every"):
            self._scanner.fail(f"expected 'first' or 'every', found {self._scanner.shown()}")
        return self._scanner.advance().lower()

    def _skip(self) -> str:
        scanner = self._scanner
        if scanner.accept("to"):
            scanner.expect("next")
            scanner.expect("event")
            return "next"
        if scanner.accept("past"):
            scanner.expect("last")
            scanner.expect("event")
            return "past"
        scanner.fail(f"expected 'to next event' or 'past last event', found {scanner.shown()}")

    def _selection(self, clauses: dict[str, Any]) -> Selection:
        select, skip = clauses.get("select", "first"), clauses.get("skip", "next")
        if skip == "next":
            return "every" if select == "every" else "first"
        if select == "every":
            reason = "'select every' detects matches that overlap, which 'skip past last event' excludes; drop one"
            self._scanner.fail(reason, clauses["skip position"])
        return "past"

    def _emit(self) -> tuple[str, tuple[tuple[str, Expression], ...]]:
        scanner = self._scanner
        subject = scanner.subject()
        emitted: list[tuple[str, Expression]] = []
        while scanner.accept("with" if not emitted else ","):
            position = scanner.position
            name = scanner.attribute()
            if name in dict(emitted) or len(name) > limits.EVENT_NAME_CHARACTERS_MAX or len(emitted) >= EMITTED_MAX:
                scanner.fail(f"a detection has at most {EMITTED_MAX} attributes, each once", position)
            if not scanner.accept("="):
                scanner.fail(f"expected '=' and a value, found {scanner.shown()}")
            emitted.append((name, self._expression(None)))
        return subject, tuple(emitted)


EMITTED_MAX: Final = 64
"""Attributes of a detection that a pattern names."""
