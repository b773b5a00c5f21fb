"""Registrations that a server restores from its previous process (SPEC D-12)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.runtime.test_binding_store import stored
from wanderbus.machine import SetTimer
from wanderbus.runtime.files.binding_store import BindingStore
from wanderbus.runtime.files.registrations import Registrations
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.sip.proxy.bindings import Binding
from wanderbus.sip.proxy.sip_server import SIPServer

ALICE, BROKER, GONE = "sip:alice@example.org", "sip:broker@example.org", "sip:gone@example.org"
OWN, OTHER = "<urn:uuid:1>", "<urn:uuid:2>"
USERS = {"alice": "a", "broker": "b"}


def binding(user: str, expires_at: float = 60.0, instance: str | None = None) -> Binding:
    return Binding(f"sip:{user}@10.0.0.1:7", expires_at, "call", 1, instance=instance)


def machine() -> SIPServer:
    return SIPServer("example.org", ("10.0.0.9", 5060), USERS.get, SystemRandom(), b"key")


def test_bindings_that_are_not_restored_are_removed_from_the_file(tmp_path: Path) -> None:
    """That of the skipped instance, that of an unknown user, and an expired one."""
    path = tmp_path / "registrations.db"
    store = BindingStore.open(path)
    users = {aor: (binding(aor[4:].partition("@")[0]),) for aor in (ALICE, GONE)}
    users[BROKER] = (binding("broker", instance=OWN),)
    store.save(users, time.time(), 0.0)
    store.close()

    async def restart() -> SIPServer:
        server = machine()
        registrations = Registrations.open(path)
        outputs = registrations.restore_into(server, without=OWN)
        assert [output.key for output in outputs if isinstance(output, SetTimer)] == [("registrar", ALICE)]
        registrations.close()
        return server

    assert list(asyncio.run(restart()).location) == [ALICE]
    left = BindingStore.open(path)
    assert list(left.load(0.0, 0.0)) == [ALICE]
    left.close()


def test_another_instance_of_the_skipped_user_is_restored(tmp_path: Path) -> None:
    path = tmp_path / "registrations.db"
    store = BindingStore.open(path)
    store.save({BROKER: (binding("broker", instance=OWN), binding("broker", instance=OTHER))}, time.time(), 0.0)
    store.close()

    async def restart() -> SIPServer:
        server = machine()
        registrations = Registrations.open(path)
        registrations.restore_into(server, without=OWN)
        registrations.close()
        return server

    assert [each.instance for each in asyncio.run(restart()).location.bindings(BROKER, 0.0)] == [OTHER]


def test_the_writes_of_one_turn_are_one_and_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "registrations.db"

    async def noted() -> dict[str, tuple[Binding, ...]]:
        registrations = Registrations.open(path)
        registrations.note(ALICE, (binding("x"),))
        registrations.note(ALICE, (binding("alice"),))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        found = stored(path, 0.0, 0.0)
        registrations.close()
        return found

    assert [b.contact for b in asyncio.run(noted())[ALICE]] == ["sip:alice@10.0.0.1:7"]
