"""Refused logins are logged, and a flood of them is not."""

from __future__ import annotations

import pytest

from wanderbus.runtime.login_log import LINES_MAX, QUIET_S, LoginLog
from wanderbus.sip.registrar import LoginRefused


def test_a_line_for_each_user_and_source_and_no_more_than_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = LoginLog(lambda: now[0])
    for _ in range(100):
        log.refused(LoginRefused("sip:alice@localhost", "Wrong Password", "192.0.2.1"))
    assert caplog.messages == ["login of sip:alice@localhost from 192.0.2.1 refused: Wrong Password"]
    for number in range(1_000):
        log.refused(LoginRefused(f"sip:u{number}@localhost", "Unknown User", "192.0.2.2"))
    assert len(caplog.messages) == LINES_MAX
    now[0] = QUIET_S
    log.refused(LoginRefused("sip:alice@localhost", "Wrong Password", "192.0.2.1"))
    suppressed = 1_000 - (LINES_MAX - 1)
    assert caplog.messages[-1].endswith(f"refused: Wrong Password; {suppressed} more were refused meanwhile")
