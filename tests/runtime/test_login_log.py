"""Refused logins are logged, and a flood of them is not."""

from __future__ import annotations

import pytest

from wanderbus.runtime.login_log import LINES_MAX, QUIET_S, LoginLog
from wanderbus.sip.login_guard import LoginRefused


def test_the_first_and_each_doubling_are_logged_and_no_more_than_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = LoginLog(lambda: now[0])
    for count in range(1, 101):
        log.refused(LoginRefused("sip:alice@localhost", "Wrong", "192.0.2.1", count))
    assert [message.partition(", ")[2] for message in caplog.messages] == [
        "",
        "2 times so far",
        "4 times so far; 1 more were refused meanwhile",
        "8 times so far; 3 more were refused meanwhile",
        "16 times so far; 7 more were refused meanwhile",
        "32 times so far; 15 more were refused meanwhile",
        "64 times so far; 31 more were refused meanwhile",
    ]
    assert caplog.messages[0] == "login of sip:alice@localhost from 192.0.2.1 refused: Wrong"
    for number in range(1_000):
        log.refused(LoginRefused(f"sip:u{number}@localhost", "Wrong", "192.0.2.2"))
    assert len(caplog.messages) == LINES_MAX
    now[0] = QUIET_S
    log.refused(LoginRefused("sip:alice@localhost", "Wrong", "192.0.2.1", 128))
    suppressed = 1_000 - (LINES_MAX - 7)
    assert caplog.messages[-1].endswith(f"Wrong, 128 times so far; {suppressed} more were refused meanwhile")


def test_who_is_refused_the_same_again_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = LoginLog(lambda: now[0])
    for now[0] in (0.0, 1.0, QUIET_S, QUIET_S + 1.0):
        log.refused(LoginRefused("sip:alice@localhost", "Forbidden", "192.0.2.1"))
    assert len(caplog.messages) == 2
