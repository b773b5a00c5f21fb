"""Unread subscriptions in the listings of the command line, and the effect of a purge (SPEC G-25)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import wanderbus
from tests.cli.shell import Shell, one_line

pytestmark = pytest.mark.integration

ROLES = '[broker.roles]\n"sip:olga@localhost" = "operator"\n"sip:adam@localhost" = "administrator"\n'
ALICE = "sip:alice@localhost"
COUNT = 400
WINDOW = 256
TABLE = 80


@pytest.fixture
def office(shell: Shell) -> Shell:
    """A server with an operator and an administrator."""
    shell.write_users("alice:secret\nbob:secret\nolga:secret\nadam:secret\n")
    (shell.directory / "roles.toml").write_text(ROLES)
    shell.up("--config", "roles.toml")
    return shell


async def run(shell: Shell, name: str, *words: str, input: str | None = None) -> tuple[int, str, str]:
    who = ["--user", f"sip:{name}@localhost", "--password", "secret", "--server", f"127.0.0.1:{shell.port}"]
    return await asyncio.to_thread(shell.run, *words, *who, input=input)


async def output(shell: Shell, name: str, *words: str, input: str | None = None) -> str:
    status, out, err = await run(shell, name, *words, input=input)
    assert (status, err) == (0, "")
    return out


async def listed(shell: Shell, name: str, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await output(shell, name, *words, "--json")).splitlines()]


async def details(shell: Shell, name: str, what: str) -> list[str]:
    """Return the lines of Alice's table, with the continued ones joined."""
    lines = (await output(shell, name, what, ALICE)).splitlines()
    assert max(map(len, lines)) <= TABLE
    return "\n".join(lines).replace("\n    ", " ").splitlines()


async def published(shell: Shell, first: int, last: int) -> None:
    events = "".join(f'{{"n": {n}}}\n' for n in range(first, last + 1))
    await output(shell, "bob", "pub", "Trade", "-", input=events)


@asynccontextmanager
async def two_kept(shell: Shell) -> AsyncIterator[tuple[str, str]]:
    """Yield the ids of two subscriptions of one program: it reads all of the first, and nothing of the second."""
    async with (
        wanderbus.connect(
            ALICE,
            password="secret",
            server=f"127.0.0.1:{shell.port}",
            state_dir=shell.directory / "desk",
        ) as alice,
        alice.subscribe("Trade", keep=True) as read,
        alice.subscribe("Trade", "n > 0", keep=True) as unread,
    ):
        publishing = asyncio.create_task(published(shell, 1, COUNT))
        for n in range(1, COUNT + 1):
            assert (await anext(read)).event["n"] == n
        read.ack()
        await publishing
        deadline = time.monotonic() + 30
        while [row["queued"] for row in await listed(shell, "alice", "subscriptions")] not in ([0, COUNT], [COUNT, 0]):
            assert time.monotonic() < deadline, "what was read is still queued"
        yield read.subscription.id, unread.subscription.id


@pytest.mark.parametrize("name", ["alice", "olga"], ids=["owner", "operator"])
def test_g25_an_unread_subscription_is_shown_and_one_that_is_read_is_not(office: Shell, name: str) -> None:
    async def story() -> None:
        async with two_kept(office) as (read, unread):
            (desk,) = [each["device"] for each in (await listed(office, name, "sessions", ALICE))[0]["devices"]]
            for what in ("sessions", "queues"):
                (row,) = await listed(office, name, what, ALICE)
                (shown,) = row["unread_subscriptions"]
                assert (row["unread"], shown["subscription"], shown["state"]) == (1, unread, "window_full")
                lines = await details(office, name, what)
                (line,) = [line for line in lines if "unread" in line]
                assert what == "queues" or f"  device {desk} CONNECTED" in "\n".join(lines)
                assert what == "queues" or " reads 2" in "\n".join(lines)
                assert line.startswith(f"  unread {unread}: {COUNT} waiting, the oldest for ")
                assert "; blocked for " in line
                assert line.endswith(f"; {desk} has {WINDOW} unacknowledged")
            rows = {row["id"]: row for row in await listed(office, name, "subscriptions", ALICE)}
            assert {identity: row["state"] for identity, row in rows.items()} == {
                read: "reading",
                unread: "window_full",
            }
            assert rows[unread]["readers"] == [{"device": desk, "unacknowledged": WINDOW}]
            table = await details(office, name, "subscriptions")
            (at_read,) = [at for at, line in enumerate(table) if line.startswith(read)]
            (at_unread,) = [at for at, line in enumerate(table) if line.startswith(unread)]
            assert table[at_read + 2] == f"  read by {desk}"
            assert table[at_unread + 1] == "  eci n > 0"
            assert table[at_unread + 3].startswith(f"  unread {COUNT} waiting, the oldest for ")
        (row,) = await listed(office, name, "sessions", ALICE)
        assert [each["state"] for each in row["unread_subscriptions"]] == ["not_read"]
        (line,) = [line for line in await details(office, name, "subscriptions") if "unread" in line]
        assert line.endswith("; nobody reads it")

    asyncio.run(story())


def test_g25_a_purge_of_one_subscription_or_of_a_session_leaves_nothing_unread(office: Shell) -> None:
    async def story() -> None:
        async with two_kept(office) as (read, unread):
            pass
        await published(office, COUNT + 1, COUNT + 2)
        purge = ("purge", ALICE, "--session", "default", "--yes")
        assert await output(office, "adam", *purge, "--subscription", unread) == f"purged {COUNT + 2}\n"
        queued = {row["id"]: row["queued"] for row in await listed(office, "olga", "subscriptions", ALICE)}
        assert queued == {read: 2, unread: 0}
        (row,) = await listed(office, "olga", "queues", ALICE)
        assert (row["queued"], row["gaps"], row["missing"]) == (2, 1, COUNT + 2)
        assert [each["subscription"] for each in row["unread_subscriptions"]] == [read]
        status, out, err = await run(office, "adam", *purge, "--subscription", "wb-none")
        assert (status, out) == (1, "")
        assert "wb-none" in one_line(err)
        assert await output(office, "adam", *purge, "--json") == '{"purged":2}\n'
        (row,) = await listed(office, "olga", "queues", ALICE)
        assert (row["queued"], row["unread"], row["missing"]) == (0, 0, COUNT + 4)
        lines = await details(office, "olga", "sessions")
        assert not [line for line in lines if "unread" in line]
        assert f"  lost {COUNT + 4} purged" in lines

    asyncio.run(story())


def test_a_user_without_a_session_is_unknown_to_every_listing(office: Shell) -> None:
    async def story() -> None:
        complaint = "the broker has no session of {}@localhost; 'wanderbus sessions' lists the users that have one"
        for what in ("sessions", "subscriptions", "queues"):
            status, out, err = await run(office, "olga", what, "nobody@localhost")
            assert (status, out, one_line(err)) == (1, "", complaint.format("nobody"))
            assert await output(office, "olga", what, "no*", "--json") == ""
        await published(office, 1, 1)
        status, out, err = await run(office, "olga", "subscriptions", "bob@localhost")
        assert (status, out, one_line(err)) == (1, "", complaint.format("bob")), "its session is over"

    asyncio.run(story())
