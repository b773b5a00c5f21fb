"""Users of one domain at a broker of another, in one process over loopback (SPEC D-13)."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.world import SUBJECT, numbers, publish, run, service
from tests.certificates import Certificates, certify, make_certificates
from wanderbus.config import DomainsSettings
from wanderbus.errors import WanderbusError
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.server.proxy_server import ProxyServer

pytestmark = pytest.mark.integration

HOME, BROKER = "127.0.0.1", "127.0.0.2"


class Certified:
    """The files of two domains: one authority, a certificate for each, and one that names neither."""

    def __init__(self, directory: Path) -> None:
        self.files: Certificates = make_certificates(directory)
        self.home = certify(directory, "home", f"DNS:a.example,IP:{HOME}")
        self.broker = certify(directory, "broker", f"URI:sip:b.example,DNS:www.example,IP:{BROKER}")
        self.other = certify(directory, "other", f"DNS:c.example,IP:{BROKER}")


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return Certified(tmp_path_factory.mktemp("certificates"))


class Story:
    """Home proxy a.example, broker at b.example, and agents of users of either; keywords give the differences."""

    def __init__(self, directory: Path, certified: Certified) -> None:
        self.directory = directory
        self.certified = certified
        self.home: Any = None
        self.server: Any = None

    def domains(self, **more: Any) -> DomainsSettings:
        settings: dict[str, Any] = {"ca_file": self.certified.files.authority, "lookup": False}
        return DomainsSettings(**(settings | more))

    def broker_settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings of the broker's server; ``more`` of its other domains."""
        known: dict[str, Any] = {"trusted": ("a.example",), "routes": {"a.example": (f"{HOME}:{_port(1)}",)}}
        return {
            "domain": "b.example",
            "host": BROKER,
            "port": 0,
            "tls_port": _port(2),
            "data_dir": self.directory / "broker",
            "users": {"bob": "hunter2", "carol": "namesake"},
            "tls_certificate": self.certified.broker,
            "user_domains": ("a.example",),
            "domains": self.domains(**(known | more)),
        }

    @asynccontextmanager
    async def running(
        self,
        home: dict[str, Any] | None = None,
        broker: dict[str, Any] | None = None,
        *,
        home_domains: dict[str, Any] | None = None,
        broker_domains: dict[str, Any] | None = None,
        only: dict[str, Any] | None = None,
    ) -> AsyncIterator[None]:
        """Run both servers; ``only`` are all settings of that of the broker, in place of the usual."""
        async with AsyncExitStack() as stack:
            settings = only or self.broker_settings(**(broker_domains or {})) | (broker or {})
            self.server = await stack.enter_async_context(wanderbus.Server(**settings))
            at_home: dict[str, Any] = {"trusted": ("b.example",), "routes": {"b.example": (f"{BROKER}:{_port(2)}",)}}
            proxy: dict[str, Any] = {
                "domain": "a.example",
                "host": HOME,
                "port": 0,
                "tls_port": _port(1),
                "data_dir": self.directory / "home",
                "users": {"carol": "secret", "dave": "sesame"},
                "tls_certificate": self.certified.home,
                "domains": self.domains(**(at_home | (home_domains or {}))),
            }
            self.home = await stack.enter_async_context(ProxyServer(**(proxy | (home or {}))))
            yield

    def agent(self, name: str = "carol", password: str = "secret", **more: Any) -> wanderbus.Agent:
        """Return an agent of a user of a.example: its home server and the broker are its only settings."""
        settings: dict[str, Any] = {
            "password": password,
            "server": f"{HOME}:{self.home.tls_address[1]}",
            "broker": "sip:broker@b.example",
            "ca_file": self.certified.files.authority,
            "state_dir": self.directory / name,
        }
        return wanderbus.connect(f"sip:{name}@a.example", **(settings | more))

    def local(self, name: str = "bob", password: str = "hunter2") -> wanderbus.Agent:
        """Return an agent of a user of the broker's own domain."""
        host, port = self.server.address
        return wanderbus.connect(
            f"sip:{name}@b.example",
            password=password,
            server=f"{host}:{port}",
            state_dir=self.directory / f"local-{name}",
        )


_ports: dict[int, int] = {}


def _port(which: int) -> int:
    """Return a TCP port for one of the two servers: each needs the other's before it starts."""
    if which not in _ports:
        with socket.socket() as probe:
            probe.bind((HOME, 0))
            _ports[which] = int(probe.getsockname()[1])
    return _ports[which]


@pytest.fixture
def story(tmp_path: Path, certified: Certified) -> Story:
    return Story(tmp_path, certified)


def test_d13_a_user_of_one_domain_publishes_subscribes_and_moves_at_a_broker_of_another(story: Story) -> None:
    everything = SUBJECT, "(n >= 0)"

    async def tale() -> None:
        async with (
            story.running(),
            story.local() as bob,
            story.agent() as carol,
            carol.subscribe(*everything) as hers,
            bob.subscribe(*everything) as his,
        ):
            await publish(bob, 0, 1)
            await publish(carol, 2)
            assert await numbers(hers, 3) == [0, 1, 2]
            for n, place in enumerate(("127.0.0.7", "127.0.0.8"), 3):
                await carol.rebind(place)
                await publish(carol, n)
            assert await numbers(hers, 2) == [3, 4]
            assert await numbers(his, 5) == [0, 1, 2, 3, 4]
            users = {row.user for row in service(story.server).broker.state.sessions.values()}
            assert users == {"sip:bob@b.example", "sip:carol@a.example"}

    run(tale())


def refused(story: Story, expected: str, **options: Any) -> None:
    """Hold that carol cannot connect, for a reason with ``expected`` in it."""

    async def tale() -> None:
        async with story.running(**options):
            with pytest.raises(WanderbusError, match=expected):
                async with story.agent(connect_s_max=3.0):
                    pass

    run(tale())


def test_users_of_other_domains_need_a_setting(story: Story) -> None:
    refused(story, "Not For Users Of Your Domain", broker={"user_domains": ()})


def test_a_home_domain_asserts_nothing_to_an_untrusted_broker(story: Story) -> None:
    refused(story, "Nobody Vouches For You", home_domains={"trusted": ()})


def test_nobody_is_vouched_for_over_a_route_in_the_clear(story: Story) -> None:

    async def tale() -> None:
        async with story.running(home_domains={"trusted": (), "routes": {"b.example": ("127.0.0.2:1",)}}):
            plain = {"b.example": (f"{BROKER}:{story.server.address[1]};transport=tcp",)}
            async with ProxyServer(
                domain="a.example",
                port=0,
                tls_port=0,
                data_dir=story.directory / "plain",
                users={"carol": "secret"},
                tls_certificate=story.certified.home,
                domains=story.domains(routes=plain),
            ) as plain_home:
                assert plain_home.tls_address is not None
                with pytest.raises(WanderbusError, match="Nobody Vouches For You"):
                    async with story.agent(server=f"{HOME}:{plain_home.tls_address[1]}", connect_s_max=3.0):
                        pass

    run(tale())


def test_a_server_with_the_certificate_of_another_domain_is_reported(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {"c.example": (f"{BROKER}:{_port(2)}",)}

    async def tale() -> None:
        async with story.running(home_domains={"routes": wrong, "trusted": ()}):
            with pytest.raises(WanderbusError):
                async with story.agent(broker="sip:broker@c.example", connect_s_max=2.0):
                    pass

    run(tale())
    assert f"the certificate of c.example at {BROKER}:{_port(2)} names b.example" in caplog.text


def test_namesakes_of_two_domains_are_two_users(story: Story) -> None:
    async def tale() -> None:
        async with story.running(), story.local("carol", "namesake") as ours, story.agent() as theirs:
            async with ours.subscribe(SUBJECT, "(n >= 0)") as first, theirs.subscribe(SUBJECT, "(n > 1)") as second:
                await publish(ours, 1, 2)
                assert await numbers(first, 2) == [1, 2]
                assert await numbers(second, 1) == [2]
            users = {row.user for row in service(story.server).broker.state.sessions.values()}
            assert users == {"sip:carol@b.example", "sip:carol@a.example"}

    run(tale())


def test_a_domain_has_no_more_users_than_its_bound(story: Story) -> None:
    async def tale() -> None:
        bounds = BrokerConfig(domain_users_max=1)
        async with story.running(broker={"broker": bounds}), story.agent() as carol:
            await publish(carol, 1)
            with pytest.raises(WanderbusError, match="domain_users_max is 1"):
                async with story.agent("dave", "sesame", connect_s_max=3.0):
                    pass
            async with story.local() as bob:
                await publish(bob, 2)

    run(tale())


def test_a_user_of_another_domain_may_have_a_role(story: Story) -> None:
    async def tale() -> None:
        roles = BrokerConfig(roles={"sip:carol@a.example": "operator"})
        async with (
            story.running(broker={"broker": roles}),
            story.local() as bob,
            story.agent() as carol,
            story.agent("dave", "sesame") as dave,
        ):
            await publish(bob, 1)
            seen = {row.user async for row in carol.operator.sessions("sip:bob@b.example")}
            assert seen == {"sip:bob@b.example"}
            with pytest.raises(WanderbusError, match="operator"):
                assert [row async for row in dave.operator.sessions("sip:bob@b.example")]

    run(tale())


def test_sessions_between_domains_outlive_the_broker(story: Story) -> None:
    """The broker reaches its agents through both proxies, and they continue where they were."""

    async def tale() -> None:
        async with AsyncExitStack() as stack:
            running = await stack.enter_async_context(AsyncExitStack())
            await running.enter_async_context(story.running())
            port = story.server.address[1]
            carol = await stack.enter_async_context(story.agent(keepalive_s=3600.0))
            hers = await stack.enter_async_context(carol.subscribe(SUBJECT, "(n >= 0)"))
            await publish(carol, 1)
            await story.server.close()
            async with wanderbus.Server(**(story.broker_settings() | {"port": port})) as again:
                story.server = again
                async with story.local() as bob:
                    await publish(bob, 2)
                    assert await numbers(hers, 2) == [1, 2]

    run(tale())


def test_a_broker_apart_believes_its_own_sip_server_over_tls(story: Story) -> None:
    """The registrar and proxy of b.example are another server, which the broker reaches by ``sips``."""

    async def tale() -> None:
        users = {"broker": "quorum", "bob": "hunter2"}
        settings = story.broker_settings() | {"users": users, "data_dir": story.directory / "apart"}
        del settings["user_domains"]
        async with ProxyServer(**settings) as apart:
            assert apart.tls_address is not None
            broker: dict[str, Any] = {
                "domain": "b.example",
                "host": BROKER,
                "data_dir": story.directory / "broker",
                "users": users,
                "user_domains": ("a.example",),
                "sip_server": f"sips:{BROKER}:{apart.tls_address[1]}",
                "ca_file": story.certified.files.authority,
            }
            async with (
                story.running(only=broker),
                story.agent() as carol,
                carol.subscribe(SUBJECT, "(n >= 0)") as hers,
            ):
                await publish(carol, 1)
                await carol.rebind("127.0.0.7")
                await publish(carol, 2)
                assert await numbers(hers, 2) == [1, 2]

    run(tale())
