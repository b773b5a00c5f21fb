"""Waits for an answer are noted when they are long, and when they end; a limit ends them."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace

import pytest

from wanderbus.client import answer_wait
from wanderbus.client.answer_wait import NOTICE_S, AnswerWait, NoAnswer


async def story(answer_s: float, limit_s: float | None, reason: str = "") -> tuple[list[str], str]:
    """Wait for an answer that comes after ``answer_s``; return the words of the notes, and the error."""
    noted: list[tuple[str, str]] = []

    async def request() -> str:
        await asyncio.sleep(answer_s)
        return "done"

    try:
        result = await AnswerWait(lambda *note: noted.append(note), limit_s, lambda: reason).of(request(), "a request")
    except NoAnswer as error:
        result = str(error)
    return [word for word, _ in noted], result


@pytest.mark.parametrize(
    ("answer_s", "limit_s", "reason", "words", "result"),
    [
        (0.0, None, "", [], "done"),
        (0.3, None, "", ["waiting", "answered"], "done"),
        (0.3, None, "s2 is away", [], "done"),
        (9.0, 0.3, "", ["waiting"], r"the server has not answered a request within 0\.3 s"),
        (9.0, 0.05, "", [], r"the server has not answered a request within 0\.05 s"),
        (9.0, 0.3, "s2 is away", [], r"the server has not answered a request within 0\.3 s: s2 is away"),
    ],
)
def test_a_long_wait_is_noted_once_and_a_limit_ends_it(
    monkeypatch: pytest.MonkeyPatch,
    answer_s: float,
    limit_s: float | None,
    reason: str,
    words: list[str],
    result: str,
) -> None:
    monkeypatch.setattr(answer_wait, "NOTICE_S", 0.1)
    found, text = asyncio.run(story(answer_s, limit_s, reason))
    assert found == words
    assert re.fullmatch(result, text)


def test_a_cancelled_wait_cancels_its_request() -> None:
    async def cancelled() -> bool:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def request() -> None:
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        waiting = asyncio.create_task(AnswerWait(lambda *_: None, None).of(request(), "a request"))
        await begun.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0)
        return ended.is_set()

    assert asyncio.run(cancelled())


def test_a_check_just_before_its_time_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers may fire early; then the time comes between the check and the next wait."""
    now = [0.0]
    monkeypatch.setattr(answer_wait, "time", SimpleNamespace(monotonic=lambda: now[0]))
    noted: list[str] = []
    wait = AnswerWait(lambda kind, _: noted.append(kind), None)
    wait.progressed()
    now[0] = NOTICE_S - 1e-4
    wait.check("a request")
    now[0] = NOTICE_S + 1e-4
    assert wait._left_s() == 0.0
    wait.check("a request")
    assert noted == ["waiting"]
    assert wait._left_s() is None
