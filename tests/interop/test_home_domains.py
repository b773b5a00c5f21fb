"""Users of one domain at a broker of another: both domains ours, or Kamailio the home of the users (SPEC D-13)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import wanderbus
from harness.ports import free_port
from tests.api.world import SUBJECT, numbers, publish, run
from tests.certificates import Certificates, certify, make_certificates
from tests.interop import kamailio as peer
from tests.interop.kamailio import kamailio
from wanderbus.config import DomainsSettings
from wanderbus.errors import WanderbusError

pytestmark = pytest.mark.interop(scenario="users of one domain at a broker of another", transport="TLS")

with_kamailio = pytest.mark.skipif(peer.PROGRAM is None or not peer.HAS_TLS, reason=peer.TLS_MODULE)

USERS = {"carol": "secret", "dave": "sesame"}
HOME, BROKER = "127.0.0.1", "127.0.0.2"


class Domains(NamedTuple):
    """Certificates, and the port of each server: the home of the users and that of the broker."""

    directory: Path
    files: Certificates
    home_port: int
    broker_port: int

    def broker(self, **more: Any) -> wanderbus.Server:
        """Return the server of b.example, with users of a.example admitted."""
        domains = DomainsSettings(
            lookup=False,
            ca_file=self.files.authority,
            trusted=("a.example",),
            routes={"a.example": (f"{HOME}:{self.home_port}",)},
        )
        settings: dict[str, Any] = {
            "domain": "b.example",
            "host": BROKER,
            "port": 0,
            "tls_port": self.broker_port,
            "data_dir": self.directory / "broker",
            "users": {"bob": "hunter2"},
            "tls_certificate": certify(self.directory, "b", f"DNS:b.example,IP:{BROKER}"),
            "user_domains": ("a.example",),
            "domains": domains,
        }
        return wanderbus.Server(**(settings | more))

    def agent(self, user: str, **more: Any) -> wanderbus.Agent:
        """Return an agent of a user of a.example."""
        settings: dict[str, Any] = {
            "password": USERS[user],
            "server": f"{HOME}:{self.home_port}",
            "broker": "sip:broker@b.example",
            "ca_file": self.files.authority,
            "state_dir": self.directory / user,
            "local_address": HOME,
        }
        return wanderbus.connect(f"sip:{user}@a.example", **(settings | more))


@pytest.fixture
def domains(tmp_path: Path) -> Domains:
    return Domains(tmp_path, make_certificates(tmp_path), free_port(), free_port())


@contextmanager
def kamailio_as_home(domains: Domains) -> Iterator[None]:
    certificate = certify(domains.directory, "a", f"DNS:a.example,IP:{HOME}")
    with kamailio(
        USERS,
        domain="a.example",
        address=HOME,
        tls_port=domains.home_port,
        algorithm="SHA-256",
        certificates=domains.files._replace(certificate=certificate, key=certificate),
        peer=("b.example", f"{BROKER}:{domains.broker_port}", domains.files.authority),
    ):
        yield


def story_of(domains: Domains) -> None:
    """Publish, subscribe, move on either side, restart the broker, and move again."""

    async def story() -> None:
        async with domains.broker():
            carol = await domains.agent("carol").__aenter__()
            dave = await domains.agent("dave").__aenter__()
            notifications = await dave.subscribe(SUBJECT).__aenter__()
            await publish(carol, 1, 2)
            assert await numbers(notifications, 2) == [1, 2]
            await dave.rebind("127.0.0.7")
            await publish(carol, 3)
            await carol.rebind("127.0.0.8")
            await publish(carol, 4)
            assert await numbers(notifications, 2) == [3, 4]
        async with domains.broker():
            await publish(carol, 5)
            assert await numbers(notifications, 1) == [5]
            await dave.rebind("127.0.0.9")
            await publish(carol, 6)
            assert await numbers(notifications, 1) == [6]
            await notifications.__aexit__(None, None, None)
            await dave.close()
            await carol.close()

    run(story())


@with_kamailio
@pytest.mark.interop(peer="Kamailio")
def test_kamailio_is_the_home_of_the_users(domains: Domains) -> None:
    with kamailio_as_home(domains):
        story_of(domains)


@with_kamailio
@pytest.mark.interop(peer="Kamailio", scenario="a wrong password at home, a broker elsewhere")
def test_kamailio_lets_nobody_out_who_does_not_prove_it(domains: Domains) -> None:
    async def story() -> None:
        async with domains.broker():
            with pytest.raises(WanderbusError):
                async with domains.agent("carol", password="guess", connect_s_max=3.0):
                    pass

    with kamailio_as_home(domains):
        run(story())


@with_kamailio
@pytest.mark.interop(peer="Kamailio", scenario="a broker that does not admit the home domain")
def test_a_broker_that_does_not_admit_the_domain_refuses_its_users(domains: Domains) -> None:
    async def story() -> None:
        async with domains.broker(user_domains=()):
            with pytest.raises(WanderbusError, match="Not For Users Of Your Domain"):
                async with domains.agent("carol", connect_s_max=3.0):
                    pass

    with kamailio_as_home(domains):
        run(story())
