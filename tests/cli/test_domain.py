"""``wanderbus domain``: the file of an event domain."""

from __future__ import annotations

import json
import operator
import stat
from pathlib import Path

import pytest

from tests.cli.shell import one_line
from wanderbus.cli.application import run
from wanderbus.cli.domain import status, topology
from wanderbus.cli.domain.servers_asked import ServerAnswer
from wanderbus.cli.domain.status import Answers
from wanderbus.cli.up import given_to
from wanderbus.config import ServerSettings
from wanderbus.operator_rows import ServerInfo
from wanderbus.runtime.files.domain_file import create_domain, read_domain

Output = pytest.CaptureFixture[str]


def test_a_new_domain_has_a_file_and_private_keys(tmp_path: Path, capsys: Output) -> None:
    directory = tmp_path / "domain"
    file = directory / "domain.toml"
    assert run(["domain", "init", str(directory), "--size", "3", "--name", "example.org", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(file), "servers": 3}
    keys = sorted((directory / "keys").iterdir())
    assert [key.name for key in keys] == ["s1.key", "s2.key", "s3.key"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (file, *keys))
    assert run(["domain", "servers", "--config", str(file), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["address"] for row in rows] == ["127.0.0.1:5601", "127.0.0.2:5601", "127.0.0.3:5601"]
    assert [row["sip"] for row in rows] == ["127.0.0.1:5060", "127.0.0.2:5060", "127.0.0.3:5060"]
    assert [("directory" in row["roles"]) for row in rows] == [True, False, False]
    assert sum(row["groups"] for row in rows) == 64
    assert run(["domain", "channels", "Stock", "Flight", "--config", str(file), "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["subject"], row["epoch"], row["model"], row["merging"]) for row in shown] == [
        ("Stock", 1, "ordered", "perfect"),
        ("Flight", 1, "ordered", "perfect"),
    ]
    assert {row["leader"] for row in shown} <= {"s1", "s2", "s3"}
    assert {row["leaders_from"] for row in (*rows, *shown)} == {"file"}
    assert run(["domain", "channels", "Stock", "--config", str(file)]) == 0
    shown_as_text = capsys.readouterr()
    assert shown_as_text.out.endswith("epoch 1, ordered, merging perfect\n")
    assert one_line(shown_as_text.err).endswith("answers on this computer: the leaders are those of the file")


def test_the_file_is_found_where_domain_up_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["domain", "servers"]) == 2
    assert "neither domain.toml nor wanderbus-domain/domain.toml exists" in one_line(capsys.readouterr().err)
    create_domain(tmp_path / "wanderbus-domain", "example.org", 2)
    assert run(["domain", "servers", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_password_without_a_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    file = create_domain(tmp_path, "example.org", 2)
    monkeypatch.setenv("WANDERBUS_PASSWORD", "secret")
    for words in (("domain", "status", "--event-domain", str(file)), ("sessions",), ("pub", "Trade", "n=1")):
        assert run(list(words)) == 2
        assert "(--password or WANDERBUS_PASSWORD), and no user: give --user" in one_line(capsys.readouterr().err)


def test_free_ports_are_chosen_and_a_port_without_room_above_it_is_refused(tmp_path: Path, capsys: Output) -> None:
    assert run(["domain", "init", str(tmp_path / "one"), "--size", "2", "--port", "0"]) == 0
    assert run(["domain", "init", str(tmp_path / "two"), "--size", "2", "--port", "7000"]) == 0
    one, two = (read_domain(tmp_path / name / "domain.toml").settings.servers for name in ("one", "two"))
    addresses = [address for server in one.values() for address in (server.sip, server.address)]
    assert len(set(addresses)) == 4
    assert [(server.sip, server.address) for server in two.values()] == [
        ("127.0.0.1:7000", "127.0.0.1:7541"),
        ("127.0.0.2:7000", "127.0.0.2:7541"),
    ]
    assert run(["domain", "init", str(tmp_path / "three"), "--port", "65000"]) == 2
    assert "the SIP port 65000 is out of range" in capsys.readouterr().err
    assert not (tmp_path / "three").exists()


def test_a_server_has_the_place_that_the_domain_gives_it(tmp_path: Path) -> None:
    file = create_domain(tmp_path, "example.org", 2)
    options = {"users": tmp_path / "users", "event_domain": file, "event_server": "s2"}
    place = operator.itemgetter("host", "port", "domain")
    assert place(given_to(ServerSettings, options, None)) == ("127.0.0.2", 5060, "example.org")
    assert place(given_to(ServerSettings, {**options, "port": 0}, None)) == ("127.0.0.2", 0, "example.org")
    registered = given_to(ServerSettings, {**options, "sip_server": "127.0.0.1"}, None)
    assert (registered["host"], "port" in registered) == ("127.0.0.2", False), "the port is that of a proxy"
    settings = tmp_path / "broker.toml"
    settings.write_text('host = "127.0.0.9"\n')
    assert place(given_to(ServerSettings, options, settings)) == ("127.0.0.9", 5060, "example.org")
    file.write_text(file.read_text().replace('sip = "127.0.0.2:5060"\n', ""))
    assert not {"host", "port"} & given_to(ServerSettings, options, None).keys()


def test_nothing_is_overwritten(tmp_path: Path, capsys: Output) -> None:
    assert run(["domain", "init", str(tmp_path)]) == 0
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(files) == 2
    assert run(["domain", "init", str(tmp_path)]) == 2
    assert "domain.toml exists and is not overwritten; choose another directory" in capsys.readouterr().err
    (tmp_path / "domain.toml").unlink()
    assert run(["domain", "init", str(tmp_path)]) == 2
    assert "s1.key exists and is not overwritten" in capsys.readouterr().err
    assert (tmp_path / "keys" / "s1.key").read_bytes() == files[tmp_path / "keys" / "s1.key"]


def test_an_unusable_file_is_named_with_its_key(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "domain.toml"
    assert run(["domain", "channels", "Stock", "--config", str(file)]) == 2
    assert "domain.toml cannot be read: No such file or directory" in capsys.readouterr().err
    assert run(["domain", "init", str(tmp_path)]) == 0
    file.write_text(file.read_text() + '\n[parents]\nStock = "Stock"\n')
    assert run(["domain", "channels", "Stock", "--config", str(file)]) == 2
    assert f"{file}: parents: 'Stock' is its own ancestor" in capsys.readouterr().err
    file.write_text(file.read_text().replace('sip = "127.0.0.1:5060"', 'sip = "127.0.0.1"'))
    assert run(["domain", "servers", "--config", str(file)]) == 2
    assert f"{file}: servers.s1.sip: '127.0.0.1' is not host:port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "no users given; give --users FILE"),
        (("stray", "--users", "users"), "unexpected argument 'stray'; options of every server follow --"),
        (("--users", "users", "--", "--port", "7000"), "--port behind -- is set by 'domain up' for each server"),
        (("--users", "users", "--", "--admin=alice"), "--admin behind -- is set by 'domain up' itself"),
        (("--users", "users", "--admin", "carol"), "--admin: there is no user 'carol' in users"),
        (("--users", "users", "--size", "1"), "domain.toml describes 2 server(s), not 1"),
        (("--users", "users", "--name", "example.net"), "describes the domain example.org, not example.net"),
        (("--users", "users", "--port", "7000"), "servers.s1.sip: 127.0.0.1:5060 has not the port 7000"),
        (("--users", "users", "--config", "none.toml"), "none.toml cannot be read"),
        (("--users", "nowhere"), "the users file nowhere cannot be read"),
    ],
)
def test_wrong_options_of_up_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, options: tuple[str, ...], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("users").touch(0o600)
    Path("users").write_text("alice:secret\n")
    create_domain(Path("fleet"), "example.org", 2)
    assert run(["domain", "up", "--data-dir", "fleet", *options]) == 2
    assert line in one_line(capsys.readouterr().err)


def test_up_needs_an_address_of_its_own_for_each_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("users").touch(0o600)
    Path("users").write_text("alice:secret\n")
    file = create_domain(Path("fleet"), "example.org", 2)
    text = file.read_text()
    for words, line in (
        ("", "servers.s2.sip is missing; add the address for agents"),
        ('sip = "127.0.0.1:5060"\n', "servers.s2.sip: s1 has that address too"),
    ):
        file.write_text(text.replace('sip = "127.0.0.2:5060"\n', words))
        assert run(["domain", "up", "--config", "fleet/domain.toml", "--users", "users"]) == 2
        assert line in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(("sent", "columns"), [(7, ["multicast", "repaired"]), (0, [])])
def test_multicast_is_counted_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, sent: int, columns: list[str]
) -> None:
    async def answers(*arguments: object) -> Answers:
        others = [ServerInfo("s2", multicast_changes=sent, repaired_changes=2), ServerInfo("s3")]
        return {"s1": ServerAnswer("s1", "127.0.0.1:5060", found=status.ServerSeen(others, ()))}

    monkeypatch.setattr(status, "ask_all", answers)
    file = create_domain(tmp_path, "example.org", 3)
    assert run(["domain", "status", "--event-domain", str(file), "--user", "sip:alice@example.org"]) == 0
    *_, heading, line = capsys.readouterr().out.splitlines()
    assert heading.split()[-len(columns) :] == columns if columns else heading.endswith("for it")
    assert line.split()[-2:] == (["7", "2"] if columns else ["0", "0"])


def test_t01_status_says_which_sessions_are_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    now_us = 1_700_000_000_000_000
    seen = {
        "s1": [ServerInfo("s2", leaving=3, leaving_since_us=now_us - 4_200_000), ServerInfo("s3")],
        "s2": [
            ServerInfo("s1", arriving=2, arriving_since_us=now_us - 4_000_000),
            ServerInfo("s3", arriving=1, arriving_since_us=now_us - 300_000_000),
        ],
        "s3": None,
    }

    async def answers(*arguments: object) -> Answers:
        return {
            name: ServerAnswer(
                name, "127.0.0.1:5060", found=None if found is None else status.ServerSeen(found, ()), error="silent"
            )
            for name, found in seen.items()
        }

    monkeypatch.setattr(status, "ask_all", answers)
    monkeypatch.setattr(status, "wall_us", lambda: now_us)
    file = create_domain(tmp_path, "example.org", 3)
    assert run(["domain", "status", "--event-domain", str(file), "--user", "sip:alice@example.org"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "on the way" in line]
    assert lines == [
        "3 sessions are on the way from s1 to s2, the oldest for 4.2 s",
        "1 session is on the way from s3 to s2, the oldest for 5 min",
    ]


def test_status_of_twenty_servers_fits_a_screen_and_has_problems_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    servers = [f"server-{number}" for number in range(1, 21)]
    down, unknown = "server-7", "server-12"

    def seen(asked: str, other: str) -> ServerInfo:
        is_up = other != down
        trouble = "" if is_up else "192.0.2.7:5601 has acknowledged nothing for 0.8 s"
        return ServerInfo(
            *(other, is_up, 120, is_up),
            is_linked_here=is_up,
            waiting_here=4 if not is_up else 0,
            trouble=trouble,
            is_settled_here=other != unknown,
        )

    async def answers(*arguments: object) -> Answers:
        found = {
            each: None
            if each == down
            else status.ServerSeen([seen(each, other) for other in servers if other != each], ())
            for each in servers
        }
        error = "no answer within 2 s"
        return {each: ServerAnswer(each, "192.0.2.1:5060", found=rows, error=error) for each, rows in found.items()}

    monkeypatch.setattr(status, "ask_all", answers)
    file = create_domain(tmp_path, "example.org", 3)
    assert run(["domain", "status", "--event-domain", str(file), "--user", "sip:alice@example.org"]) == 1
    lines = capsys.readouterr().out.splitlines()
    heading = next(place for place, line in enumerate(lines) if line.startswith("server "))
    assert lines[:2] == [
        "server-7 at 192.0.2.1:5060 gives no answer: no answer within 2 s",
        "server-1, server-2, server-3 and 16 more cannot reach server-7: 192.0.2.7:5601 has acknowledged nothing for "
        "0.8 s",
    ]
    several = "server-1, server-2, server-3 and"
    assert lines[2:heading] == [
        f"publishes to ordered channels of {several} 15 more wait until server-12 has reported what it wants",
        f"server-7 has not confirmed the filters of {several} 16 more",
    ]
    table = lines[heading:]
    assert len(table) == 21
    assert max(map(len, table)) <= 80
    assert table[1].split() == ["server-7", "no", "answer", "76"]
    assert table[2].split() == ["server-1", "18/19", "2280", "0", "4", "0"]


def test_topology_draws_a_broken_link_as_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    news = (topology.ServerFilter("News", ""),)
    seen = {
        "s1": topology.ServerSeen(1, 2, {"s2": news, "s3": news}, {"s3": "nobody answers"}),
        "s2": topology.ServerSeen(1, 2, {"s1": news}, {"s3": ""}),
        "s3": None,
    }

    async def answers(*arguments: object) -> topology.Answers:
        return {name: ServerAnswer(name, "127.0.0.1:5060", found=found, error="silent") for name, found in seen.items()}

    monkeypatch.setattr(topology, "ask_all", answers)
    file = create_domain(tmp_path, "example.org", 3)
    words = ["topology", "--event-domain", str(file), "--user", "sip:alice@example.org"]
    assert run([*words, "--svg", str(tmp_path / "t.svg")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "  has no link to s3: nobody answers" in lines
    assert "  has no link to s3" in lines
    picture = (tmp_path / "t.svg").read_text()
    # From s1 to s2 and back are whole; s1 to s3, which cannot be reached, and what s1 and s2 want of it are broken.
    assert (picture.count("<polyline"), picture.count("stroke-dasharray"), picture.count(">x<")) == (5, 3, 2)
    assert run([*words, "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["broken"] for row in rows] == [{"s3": "nobody answers"}, {"s3": ""}, None]
