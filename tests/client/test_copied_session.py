"""Copies of sessions that an agent makes by its requests (SPEC J-05)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from wanderbus.client.copied_session import copy_of
from wanderbus.client.operator import Operator
from wanderbus.errors import Refused
from wanderbus.operator_rows import SessionInfo

ALICE = "sip:alice@example.org"


class Office:
    """Operator of a server to which the rest of one queue is on its way."""

    async def sessions(self, user: str) -> AsyncIterator[SessionInfo]:
        yield SessionInfo(user, "other", "CONNECTED", 1, 0, 0)
        yield SessionInfo(user, "default", "CONNECTED", 1, 0, 0, arriving_from="s1")


def test_j05_a_session_is_not_copied_while_a_part_of_its_queue_is_elsewhere() -> None:
    with pytest.raises(Refused, match="is on its way from s1; try again later"):
        asyncio.run(copy_of(cast(Operator, Office()), ALICE, "default"))
