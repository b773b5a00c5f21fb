"""Moves of channel groups and sessions, one after another, with their progress (SPEC J-08)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, Final, NamedTuple

import typer

from wanderbus.broker.state.rows import session_key
from wanderbus.cli.domain.servers_asked import ServerAnswer
from wanderbus.cli.output import counted, print_json, print_line, print_progress, print_progress_json
from wanderbus.client.answer_wait import AnswerWait, NoAnswer
from wanderbus.client.operator import Operator
from wanderbus.errors import NoResponse, Refused

ANSWER_S_MAX: Final = 60.0
"""Longest time for which a move is awaited; a server gives up long before."""

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the moves.")]
Rate = Annotated[float, typer.Option(min=0.01, max=1000.0, help="Most moves per second.")]
RATE: Final = 10.0


class Step(NamedTuple):
    """Move of a channel ``group``, or of a ``session`` of a ``user``, from one server to another."""

    source: str
    target: str
    group: int | None = None
    user: str = ""
    session: str = ""

    def __str__(self) -> str:
        """Return the move in words."""
        return f"{self._what} from {self.source} to {self.target}"

    @property
    def name(self) -> str:
        """Return the name of what moves."""
        return session_key(self.user, self.session) if self.group is None else str(self.group)

    @property
    def _what(self) -> str:
        if self.group is not None:
            return f"channel group {self.group}"
        return f"the session {self.session} of {self.user}"

    def row(self) -> Mapping[str, Any]:
        """Return the move as JSON has it."""
        what = {"user": self.user, "session": self.session} if self.group is None else {"group": self.group}
        return {**what, "from": self.source, "to": self.target}


class Steps:
    """Performs moves by requests to the servers, and prints a line for each.

    :param answers: answers of all servers, with the options to ask them again
    """

    def __init__(self, answers: Mapping[str, ServerAnswer[Any]], rate: float, *, json: bool) -> None:
        self._answers = answers
        self.done: list[Step] = []
        """Moves that have been done."""
        self._pause_s = 1 / rate
        self._json = json
        self._note = progress_note(json=json)
        self._wait = AnswerWait(self._note, ANSWER_S_MAX)

    def show(self, steps: Sequence[Step]) -> None:
        """Print the moves, as those that would be done."""
        for step in steps:
            self._print(step, f"would move {step}", is_moved=False)

    async def perform(self, steps: Sequence[Step]) -> list[Step]:
        """Perform the moves; return those that failed, each with its reason printed."""
        failed: list[Step] = []
        async with AsyncExitStack() as stack:
            operators: dict[str, Operator] = {}
            try:
                for step in steps:
                    asked = step.source if step.group is None else step.target
                    if asked not in operators:
                        operators[asked] = await self._operator(stack, asked)
                    if step is not steps[0]:
                        await asyncio.sleep(self._pause_s)
                    is_moved = await self._perform(operators[asked], step)
                    (self.done if is_moved else failed).append(step)
            except asyncio.CancelledError:
                self._note("interrupted", f"{len(self.done)} of {counted(len(steps), 'move')} done")
                raise
        return failed

    async def _operator(self, stack: AsyncExitStack, server: str) -> Operator:
        connection = self._answers[server].connection
        assert connection is not None, "every server has answered"
        return (await stack.enter_async_context(connection.visitor())).operator

    async def _perform(self, operator: Operator, step: Step) -> bool:
        try:
            if step.group is None:
                await self._wait.of(operator.move(step.user, step.session, step.target), f"the move of {step}")
            else:
                await self._wait.of(operator.move_group(step.group, step.target), f"the move of {step}")
        except (Refused, NoAnswer) as error:
            self._print(step, f"not moved: {step}: {error}", is_moved=False, reason=str(error))
            return False
        self._print(step, f"moved {step}", is_moved=True)
        return True

    def _print(self, step: Step, line: str, *, is_moved: bool, reason: str = "") -> None:
        if self._json:
            print_json({**step.row(), "moved": is_moved, **({"reason": reason} if reason else {})})
        else:
            print_line(line)


def progress_note(*, json: bool) -> Callable[[str, str], None]:
    """Return the function that prints progress: a word for programs, and a line for people."""
    return print_progress_json if json else lambda word, line: print_progress(line)


def all_answering(answers: Mapping[str, ServerAnswer[Any]]) -> None:
    """Raise :class:`NoResponse` unless every server has answered: each takes part in every move."""
    silent = [str(answer) for answer in answers.values() if answer.found is None]
    if silent:
        more = f", nor do {len(silent) - 1} more" if silent[1:] else ""
        raise NoResponse(f"{silent[0]}{more}; all servers of the domain have to run")
