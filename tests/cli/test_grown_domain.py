"""``wanderbus domain add`` and ``wanderbus domain remove``: what they write, and what they refuse (SPEC J-11)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import one_line
from wanderbus.cli.application import run
from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.domain_file import create_domain, leave_domain, read_domain
from wanderbus.server.event_domain_member import EventDomainMember

Output = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return create_domain(Path(), "example.org", 2)


def test_j11_an_added_server_has_the_next_place_an_address_and_a_key(file: Path, capsys: Output) -> None:
    before = read_domain(file)
    assert run(["domain", "add", "a1"]) == 0
    assert "domain.toml has a1 at 127.0.0.3:5601, 127.0.0.3:5060 for agents" in capsys.readouterr().out
    assert run(["domain", "add", "a0", "--address", "192.0.2.1:5601", "--roles", "access", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["server"], row["joined"], row["roles"], row["sip"]) == ("a0", 2, ["access"], None)
    after = read_domain(file)
    assert after.settings.numbered == ("s1", "s2", "a1", "a0")
    assert after.directory.table.leaders == before.directory.table.leaders
    assert after.directory.table.servers == ("a1", "s1", "s2")
    assert EventDomainMember(file, "a1").name == "a1", "its key is the one in the file"


def test_j11_the_file_of_one_machine_with_free_ports_grows_by_free_ports(tmp_path: Path) -> None:
    file = create_domain(tmp_path, "example.org", 1, 0)
    assert run(["domain", "add", "s2", "--event-domain", str(file)]) == 0
    added = read_domain(file).settings.servers["s2"]
    assert added.sip is not None
    assert {added.sip.partition(":")[0], added.address.partition(":")[0]} == {"127.0.0.2"}
    assert added.sip not in ("127.0.0.2:5060", added.address)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("s2",), "s2 is in the domain already; choose another name"),
        (("a/b",), "'a/b' is no name of a server"),
        (("s3", "--address", "here"), "--address: 'here' is not HOST:PORT"),
        (("s3", "--roles", "access,directory"), "--roles: 'access,directory' is not usable"),
        (("s3", "--event-domain", "none.toml"), "none.toml cannot be read"),
    ],
)
def test_a_server_that_cannot_be_added_is_one_line(
    file: Path, capsys: Output, words: tuple[str, ...], line: str
) -> None:
    before = file.read_text()
    assert run(["domain", "add", *words]) == 2
    assert line in one_line(capsys.readouterr().err)
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("server", "model", "is_told"),
    [("s2", "decentralised", True), ("s2", "ordered", False), ("s3", "decentralised", False)],
)
def test_j11_the_next_step_is_urgent_if_one_leaves_that_spread_what_the_others_want(
    file: Path, capsys: Output, server: str, model: str, is_told: bool
) -> None:
    file.write_text(f'model = "{model}"\n{file.read_text()}')
    assert run(["domain", "add", "s3"]) == 0
    leave_domain(file, server)
    assert run(["domain", "remove", server, "--user", "sip:alice@example.org", "--password", "x"]) == 0
    out = capsys.readouterr().out
    assert f"{server} has left the domain" in out
    assert ("publishes to these are refused with routes_unknown" in out) == is_told


def test_j11_a_server_that_has_left_keeps_its_place_and_does_not_start(file: Path, capsys: Output) -> None:
    assert run(["domain", "add", "s3"]) == 0
    assert run(["domain", "add", "s4"]) == 0
    leave_domain(file, "s3")
    domain = read_domain(file)
    assert domain.settings.numbered == ("s1", "s2", "s3", "s4")
    assert domain.settings.servers_with("access") == ("s1", "s2", "s4")
    with pytest.raises(ConfigurationError, match="s3 has left the domain"):
        EventDomainMember(file, "s3")
    capsys.readouterr()
    assert run(["domain", "add", "s3"]) == 2
    assert "s3 has left the domain, and its name is not used again" in one_line(capsys.readouterr().err)
    assert run(["domain", "servers"]) == 0
    assert "s3 at 127.0.0.3:5601, sip:127.0.0.3:5060 for agents: has left" in capsys.readouterr().out
    text = file.read_text()
    file.write_text(text[: text.index("[servers.s3]")] + text[text.index("[servers.s4]") :])
    with pytest.raises(ConfigurationError, match=r"the places of those that joined are 2 \(expected 1 to 1"):
        read_domain(file)
