"""A server behind an address that stands before it, one to one, as in clouds: network namespaces, so only as root."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.cli.shell import Shell, ended, read_line
from wanderbus.runtime.files.trace_file import read_trace
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.namespaces import Namespaces, check

pytestmark = pytest.mark.integration

INSIDE, PUBLIC, AGENT = "10.9.0.5", "198.51.100.7", "198.51.100.20"


@pytest.fixture
def network() -> Iterator[Namespaces]:
    """A host in a cloud, the gateway that forwards all packets to its public address, and a host outside.

    The gateway forwards nothing that comes from inside: the host in the cloud cannot reach its own public address.
    """
    made = Namespaces("wbadvertise")
    try:
        check("iptables")
    except CannotRunError as error:
        pytest.skip(str(error))
    try:
        made.add("cloud", "gate", "out")
        made.join("cloud", "eth0", "gate", "in0")
        made.join("out", "eth0", "gate", "out0")
        made.configure(
            "cloud", [f"addr add {INSIDE}/24 dev eth0", "link set eth0 up", "route add default via 10.9.0.1"]
        )
        made.configure("out", [f"addr add {AGENT}/24 dev eth0", "link set eth0 up"])
        made.configure("gate", ["addr add 10.9.0.1/24 dev in0", f"addr add {PUBLIC}/24 dev out0"])
        made.configure("gate", ["link set in0 up", "link set out0 up"])
        made.forward("gate")
        for rule in (
            f"PREROUTING -i out0 -d {PUBLIC} -j DNAT --to-destination {INSIDE}",
            f"POSTROUTING -o out0 -s {INSIDE} -j SNAT --to-source {PUBLIC}",
        ):
            made.run("gate", ["iptables", "-t", "nat", "-A", *rule.split()])
        yield made
    finally:
        made.remove()


class Cloud:
    """The commands of a test, in the namespaces of a network."""

    def __init__(self, shell: Shell, network: Namespaces) -> None:
        self.shell = shell
        self.network = network

    def start(self, host: str, *arguments: str) -> subprocess.Popen[str]:
        return self.shell.start(*arguments, within=self.network.command(host, []))

    def up(self, *more: str) -> subprocess.Popen[str]:
        server = self.start(
            *("cloud", "up", "--users", "users", "--data-dir", "data", "--sip-trace", "trace"),
            *("--host", INSIDE, "--advertise", PUBLIC, *more),
        )
        assert read_line(server) == f"ready sip:{INSIDE}:5060"
        return server

    def agent(self, command: str, name: str, password: str, *arguments: str) -> subprocess.Popen[str]:
        who = ("--user", f"sip:{name}@localhost", "--password", password, "--state-dir", name)
        return self.start("out", command, *arguments, *who, "--server", PUBLIC)

    def requests(self, method: str, direction: str) -> int:
        """Number of requests that the server has received from the agents outside ("in"), or sent there ("out")."""
        entries = read_trace([self.shell.directory / "trace"])
        return sum(
            each.data.startswith(f"{method} ".encode())
            and each.direction == direction
            and AGENT in (each.source[0], each.destination[0])
            for each in entries
        )


@pytest.mark.parametrize("more", [(), ("--relay", "--relay-calls", "all")], ids=["alone", "relay"])
def test_agents_outside_find_it_and_are_found_after_its_restart(
    shell: Shell, network: Namespaces, more: tuple[str, ...]
) -> None:
    cloud = Cloud(shell, network)
    server = cloud.up(*more)
    reader = cloud.agent("sub", "alice", "secret", "Departure", "--json", "--count", "2")
    shell.subscribed()
    assert ended(cloud.agent("pub", "bob", "hunter2", "Departure", "n=1"))[0] == 0
    assert json.loads(read_line(reader))["attributes"] == {"n": 1}
    assert cloud.requests("BYE", "in") == 1, "what agents say in a dialog comes too"
    server.kill()
    server.wait()
    before = cloud.requests("INVITE", "out")
    cloud.up(*more)
    deadline = time.monotonic() + 30
    while cloud.requests("INVITE", "out") == before:
        assert time.monotonic() < deadline, "the broker has not found the agent"
        time.sleep(0.05)
    assert ended(cloud.agent("pub", "bob", "hunter2", "Departure", "n=2"))[0] == 0
    status, out, err = ended(reader)
    assert (status, err) == (0, "")
    assert json.loads(out)["attributes"] == {"n": 2}
