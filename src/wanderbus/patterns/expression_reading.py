"""Reader of expressions: conditions behind ``where`` and values behind ``emit``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from wanderbus import limits
from wanderbus.errors import PatternError
from wanderbus.literals import integer
from wanderbus.patterns.scanning import DURATION_US_MAX, Scanner
from wanderbus.patterns.tree import Aggregate, Constant, Count, Expression, Operation, Series

AGGREGATES: Final = ("sum", "avg", "min", "max", "first", "last")
"""Functions of the values that a step has."""

HEIGHT_MAX: Final = 2 * limits.EXPRESSION_DEPTH_MAX
"""Operations in each other: a row of operands counts one for each."""

_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")


class ExpressionReader:
    """Reads expressions from a scanner; ``steps`` has the place of each step by its name, as far as it is read."""

    def __init__(self, scanner: Scanner, steps: Mapping[str, int]) -> None:
        self._scanner = scanner
        self._steps = steps
        self._depth = 0
        self._height = 0
        """Height of the expression that was read last."""
        self.references: list[tuple[int, int]] = []
        """Place of each step that is referred to, and the position in the text."""

    def read(self) -> Expression:
        """Read one expression."""
        self._depth += 1
        if self._depth > limits.EXPRESSION_DEPTH_MAX:
            self._scanner.fail(f"nested more than {limits.EXPRESSION_DEPTH_MAX} deep")
        found = self._joined("or", lambda: self._joined("and", self._negation))
        self._depth -= 1
        return found

    def _joined(self, word: str, part: Callable[[], Expression]) -> Expression:
        parts, height = [part()], self._height
        while self._scanner.accept(word):
            parts.append(part())
            height = max(height, self._height)
        return parts[0] if len(parts) == 1 else self._over(height, Operation(word, tuple(parts)))

    def _over(self, height: int, operation: Operation) -> Operation:
        """Return an operation whose operands have at most ``height``: it is evaluated by as many nested calls."""
        self._height = height + 1
        if self._height > HEIGHT_MAX:
            self._scanner.fail(f"more than {HEIGHT_MAX} operations in each other")
        return operation

    def _negation(self) -> Expression:
        if not self._scanner.is_word("not"):
            return self._comparison()
        self._scanner.advance()
        operand = self._nested(self._negation)
        return self._over(self._height, Operation("not", (operand,)))

    def _comparison(self) -> Expression:
        left = self._sum()
        if self._scanner.token == "=":
            self._scanner.fail("'=' is not a comparison; write '=='")
        if self._scanner.token not in _COMPARISONS:
            return left
        operator, height = self._scanner.advance(), self._height
        right = self._sum()
        return self._over(max(height, self._height), Operation(operator, (left, right)))

    def _sum(self) -> Expression:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/"), self._factor))

    def _chain(self, operators: tuple[str, ...], part: Callable[[], Expression]) -> Expression:
        found, length = part(), 1
        while self._scanner.token in operators:
            length += 1
            if length > limits.EXPRESSION_DEPTH_MAX:
                self._scanner.fail(f"more than {limits.EXPRESSION_DEPTH_MAX} operands in a row")
            operator, height = self._scanner.advance(), self._height
            operands = (found, part())
            found = self._over(max(height, self._height), Operation(operator, operands))
        return found

    def _factor(self) -> Expression:
        scanner = self._scanner
        self._height = 0
        if scanner.token == "-":
            scanner.advance()
            operand = self._nested(self._factor)
            return self._over(self._height, Operation("-", (Constant(0), operand)))
        if scanner.token == "(":
            opening = scanner.expect("(")
            found = self.read()
            if not scanner.accept(")"):
                if not scanner.token:
                    scanner.fail("this ( is never closed", opening)
                scanner.fail(f"expected an operator or ')', found {scanner.shown()}")
            return found
        if scanner.token[:1].isdecimal():
            return self._number()
        if scanner.is_string():
            return Constant(scanner.string())
        if scanner.is_word("true", "false"):
            return Constant(scanner.advance().lower() == "true")
        return self._named()

    def _nested(self, part: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > limits.EXPRESSION_DEPTH_MAX:
            self._scanner.fail(f"nested more than {limits.EXPRESSION_DEPTH_MAX} deep")
        found = part()
        self._depth -= 1
        return found

    def _number(self) -> Expression:
        scanner, position = self._scanner, self._scanner.position
        token = scanner.advance()
        unit_us = scanner.unit_us()
        if unit_us is not None:
            scanner.advance()
            quantity_us = float(token) * unit_us
            if quantity_us > DURATION_US_MAX:
                scanner.fail("a duration is at most ten years", position)
            return Constant(timedelta(microseconds=round(quantity_us)))
        if "." in token:
            if len(token) > 300:
                scanner.fail("this number is too long", position)
            return Constant(float(token))
        try:
            return Constant(integer(token))
        except ValueError as error:
            scanner.fail(str(error), position)

    def _named(self) -> Expression:
        """Read ``STEP.attribute``, or a function of a step."""
        scanner, position = self._scanner, self._scanner.position
        is_quoted = scanner.token[:1] == "`"
        name = scanner.name("a value: STEP.attribute, time(STEP), count(STEP), a number or a text")
        if scanner.token == "(" and not is_quoted:
            return self._function(name.lower(), position)
        return self._attribute(self._step(name, position))

    def _function(self, name: str, position: int) -> Expression:
        scanner = self._scanner
        found: Expression
        if name not in ("count", "time", *AGGREGATES):
            functions = ", ".join(("count", "time", *AGGREGATES))
            scanner.fail(f"there is no function '{name}'; use one of {functions}", position)
        scanner.expect("(")
        if name in ("count", "time"):
            step = self._named_step()
            found = Count(step) if name == "count" else Series(step, None)
        else:
            found = Aggregate(name, self._series())
        scanner.expect(")")
        return found

    def _series(self) -> Series:
        if self._scanner.is_word("time"):
            before = self._scanner.position
            self._scanner.advance()
            if self._scanner.accept("("):
                step = self._named_step()
                self._scanner.expect(")")
                return Series(step, None)
            return self._attribute(self._step("time", before))
        return self._attribute(self._named_step())

    def _named_step(self) -> int:
        position = self._scanner.position
        return self._step(self._scanner.name("the name of a step"), position)

    def _step(self, name: str, position: int) -> int:
        step = self._steps.get(name)
        if step is None:
            known = ", ".join(self._steps)
            raise PatternError(
                f"there is no step '{name}' up to here; the steps are {known}", self._scanner.text, position
            )
        self.references.append((step, position))
        return step

    def _attribute(self, step: int) -> Series:
        self._scanner.expect(".", " and an attribute behind the step")
        return Series(step, self._scanner.attribute())
