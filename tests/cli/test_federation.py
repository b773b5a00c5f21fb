"""``wanderbus federation``: the file of a federation, and the cards that operators give each other (SPEC S-01)."""

from __future__ import annotations

import io
import json
import re
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.shell import one_line
from wanderbus.cli.application import run
from wanderbus.cli.up import given_to
from wanderbus.config import ServerSettings
from wanderbus.rudp.keys import KeyPair
from wanderbus.runtime.files.federation_file import CARD_BYTES_MAX, create_federation, read_federation

Output = pytest.CaptureFixture[str]
KEY = KeyPair(b"\7" * 32).public.hex()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of alpha.example, which knows beta.example."""
    file = tmp_path / "federation.toml"
    create_federation(file, "alpha.example", {"a1": "127.0.0.1:5900"})
    words = ["--name", "beta.example", "--public-key", KEY, "--gateway", "b1=127.0.0.2:5900", "--receive", "Price"]
    assert run(["federation", "add", str(file), *words]) == 0
    return file


def rows(capsys: Output) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_file_and_a_private_key_of_a_new_domain(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "alpha" / "federation.toml"
    words = ["init", str(file), "--name", "alpha.example", "--gateway", "a1=127.0.0.1:5900", "--gateway", "a2=[::1]:1"]
    assert run(["federation", *words, "--json"]) == 0
    (row,) = rows(capsys)
    key = tmp_path / "alpha" / "federation.key"
    assert (row["file"], row["key"]) == (str(file), str(key))
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (file, key))
    found = read_federation(file)
    assert (found.public_key.hex(), dict(found.gateways), found.domains) == (
        row["public_key"],
        {"a1": ("127.0.0.1", 5900), "a2": ("::1", 1)},
        (),
    )
    before = key.read_bytes()
    for path in (file, key):
        assert run(["federation", *words]) == 2
        assert f"{path} exists and is not overwritten" in one_line(capsys.readouterr().err)
        file.unlink(missing_ok=True)
    assert key.read_bytes() == before


def test_two_domains_that_know_each_other_by_their_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    files = {name: tmp_path / name / "federation.toml" for name in ("alpha", "beta")}
    for number, (name, file) in enumerate(files.items(), 1):
        gateway = f"{name[0]}1=127.0.0.{number}:5900"
        assert run(["federation", "init", str(file), "--name", f"{name}.example", "--gateway", gateway]) == 0
    capsys.readouterr()
    assert run(["federation", "card", str(files["beta"])]) == 0
    shown = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(shown.encode())))
    words = ["--receive", "Price", "--send", "Departure"]
    assert run(["federation", "add", str(files["alpha"]), "-", *words]) == 0
    assert capsys.readouterr().out == f"{files['alpha']} has beta.example: receives Price; sends Departure\n"
    assert run(["federation", "card", str(files["alpha"]), "--json"]) == 0
    card = tmp_path / "alpha.card"
    card.write_text(capsys.readouterr().out)
    assert run(["federation", "add", str(files["beta"]), str(card), "--json"]) == 0
    (row,) = rows(capsys)
    assert (row["domain"], row["receive"], row["send"]) == ("alpha.example", [], []), "nothing unless it is named"
    alpha, beta = map(read_federation, files.values())
    assert alpha.links_of("a1") == {"beta.example/b1": (("127.0.0.2", 5900), beta.public_key)}
    assert beta.links_of("b1") == {"alpha.example/a1": (("127.0.0.1", 5900), alpha.public_key)}
    assert alpha.receives("beta.example") == frozenset({"Price"})
    assert alpha.sends("beta.example") == frozenset({"Departure"})


def test_a_domain_without_a_link(file: Path, capsys: Output) -> None:
    words = ["add", str(file), "--name", "gamma.example", "--public-key", KeyPair(b"\x08" * 32).public.hex()]
    assert run(["federation", *words, "--no-link", "--send", "Price"]) == 2
    assert "domains.gamma.example.gateways: there is none" in one_line(capsys.readouterr().err)
    assert run(["federation", "method", str(file), "Price", "tree"]) == 0
    assert run(["federation", *words, "--no-link", "--send", "Price"]) == 0
    assert read_federation(file).settings.domains["gamma.example"].gateways == {}
    words[2:2] = ["--replace", "--gateway", "g1=127.0.0.3:5900"]
    assert run(["federation", *words]) == 0
    assert read_federation(file).links_of("a1").keys() == {"beta.example/b1", "gamma.example/g1"}
    assert run(["federation", *words, "--no-link"]) == 0
    assert read_federation(file).links_of("a1").keys() == {"beta.example/b1"}


def test_s01_a_domain_whose_gateways_are_found_in_the_dns(file: Path, tmp_path: Path, capsys: Output) -> None:
    other = tmp_path / "gamma.toml"
    card = tmp_path / "gamma.card"
    create_federation(other, "gamma.example", {"c1": "127.0.0.3:5900"})
    capsys.readouterr()
    assert run(["federation", "card", str(other)]) == 0
    card.write_text(capsys.readouterr().out)
    assert run(["federation", "add", str(file), str(card), "--dns"]) == 0
    words = ["--name", "delta.example", "--public-key", KeyPair(b"\6" * 32).public.hex()]
    assert run(["federation", "add", str(file), *words, "--dns"]) == 0
    found = read_federation(file)
    assert set(found.looked_up) == {"gamma.example", "delta.example"}
    assert file.read_text().count('gateways = "dns"') == 2
    capsys.readouterr()
    assert run(["federation", "show", str(file), "gamma.example"]) == 0
    assert "gateways: as the DNS has them at _wanderbus._udp.gamma.example\n" in capsys.readouterr().out
    assert run(["federation", "add", str(file), str(card), "--replace"]) == 0
    assert set(read_federation(file).looked_up) == {"delta.example"}
    assert run(["federation", "add", str(file), *words, "--dns", "--gateway", "d1=127.0.0.4:5900"]) == 2
    assert "leave --gateway and --no-link out, or --dns" in one_line(capsys.readouterr().err)


def test_changes_of_trust(file: Path, capsys: Output) -> None:
    words = ["--receive", "Stock", "--no-receive", "Price", "--send", "Departure", "--events-per-s-max", "50"]
    assert (
        run(["federation", "trust", str(file), "beta.example", *words, "--no-backbone", "--distance-ms", "12.5"]) == 0
    )
    found = read_federation(file).settings.domains["beta.example"]
    assert (found.receive, found.send) == (("Stock",), ("Departure",))
    assert (found.events_per_s_max, found.distance_ms, found.backbone) == (50.0, 12.5, False)
    capsys.readouterr()
    words = ["--events-per-s-max", "none", "--distance-ms", "none", "--backbone", "--no-send", "Departure"]
    words += ["--gives-sessions", "--no-takes-sessions"]
    assert run(["federation", "trust", str(file), "beta.example", *words, "--json"]) == 0
    (row,) = rows(capsys)
    assert row == {
        **{"domain": "beta.example", "public_key": KEY, "gateways": {"b1": "127.0.0.2:5900"}},
        **{"receive": ["Stock"], "send": [], "events_per_s_max": None, "distance_ms": None, "backbone": True},
        **{"gives_sessions": True, "takes_sessions": False, "visitors": "own", "causal": False},
    }


def test_d13_the_service_for_visitors_is_chosen_and_shown(file: Path, capsys: Output) -> None:
    words = ["--name", "gamma.example", "--public-key", KeyPair(bytes(range(5, 37))).public.hex()]
    words += ["--gateway", "g1=127.0.0.3:5900", "--visitors", "home"]
    assert run(["federation", "add", str(file), *words]) == 0
    assert capsys.readouterr().out.endswith("receives nothing; sends nothing; visitors home\n")
    for word in ("move", "own"):
        chosen = ["--takes-sessions", "--visitors", word]
        assert run(["federation", "trust", str(file), "beta.example", *chosen]) == 0
        assert read_federation(file).settings.domains["beta.example"].visitors == word
    capsys.readouterr()
    assert run(["federation", "list", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "beta.example: receives Price; sends nothing",
        "gamma.example: receives nothing; sends nothing; visitors home",
    ]
    assert run(["federation", "trust", str(file), "gamma.example", "--visitors", "move"]) == 2
    assert "move needs takes_sessions, which is false" in one_line(capsys.readouterr().err)
    assert run(["federation", "trust", str(file), "gamma.example", "--visitors", "away"]) == 2


def test_methods_of_types(file: Path, capsys: Output) -> None:
    for subject, method in (("Price", "tree"), ("a.b", "rendezvous"), ("Price", "default")):
        assert run(["federation", "method", str(file), subject, method]) == 0
    assert dict(read_federation(file).settings.methods) == {"a.b": "rendezvous"}
    capsys.readouterr()
    assert run(["federation", "method", str(file), "a.b", "default", "--json"]) == 0
    assert rows(capsys) == [{"type": "a.b", "method": "multicast"}]
    assert dict(read_federation(file).settings.methods) == {}
    assert "[methods]" not in file.read_text()


def test_lists_and_details(file: Path, capsys: Output) -> None:
    capsys.readouterr()
    assert run(["federation", "list", str(file)]) == 0
    assert capsys.readouterr().out == "beta.example: receives Price; sends nothing\n"
    assert run(["federation", "list", str(file), "--json"]) == 0
    assert [(row["domain"], row["receive"]) for row in rows(capsys)] == [("beta.example", ["Price"])]
    assert run(["federation", "show", str(file)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "domain: alpha.example"
    assert shown[2:] == [
        *("gateway: a1 at 127.0.0.1:5900", "backbone: yes", "method of Price: multicast"),
        "foreign domains: beta.example",
    ]
    assert run(["federation", "show", str(file), "beta.example"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *("domain: beta.example", f"public key: {KEY}", "gateway: b1 at 127.0.0.2:5900", "backbone: yes"),
        *("receives from it: Price", "sends to it: nothing"),
        *("sessions may move there: no", "sessions from there may move here: no"),
        "visitors from there: own",
        *("causal order: no", "events a second that are accepted: no bound"),
        *("distance: 1 ms", "method of Price: multicast"),
    ]
    assert run(["federation", "show", str(file), "beta.example", "--json"]) == 0
    assert rows(capsys)[0]["methods"] == {"Price": "multicast"}
    assert run(["federation", "show", str(file), "--json"]) == 0
    assert rows(capsys)[0]["domains"] == ["beta.example"]


def test_comments_and_other_tables_beside_a_change(file: Path) -> None:
    text = file.read_text().replace("[domains", "# with beta since May\n[domains", 1)
    text = text.replace("receive =", "# prices alone\nreceive =", 1)
    other = KeyPair(b"\x08" * 32).public.hex()
    text += (
        f'\n# others\n[domains."gamma.example"]\npublic_key = "{other}"\nreceive = [\n  "X",  # first\n  "Y",\n]\n'
        '[domains."gamma.example".gateways]\nc1 = "127.0.0.3:5900"\n# the end\n'
    )
    file.write_text(text)
    assert run(["federation", "trust", str(file), "beta.example", "--send", "Departure"]) == 0
    changed = file.read_text()
    assert changed.count("#") == text.count("#")
    assert "# prices alone" in changed
    assert changed.partition("# others")[2] == text.partition("# others")[2]
    assert run(["federation", "trust", str(file), "gamma.example", "--no-receive", "X"]) == 0
    assert run(["federation", "remove", str(file), "beta.example"]) == 0
    left = read_federation(file).settings
    assert list(left.domains) == ["gamma.example"]
    assert (left.domains["gamma.example"].receive, left.gateways) == (("Y",), {"a1": "127.0.0.1:5900"})
    assert all(each in file.read_text() for each in ("# with beta since May", "# others", "# the end"))


def test_a_file_in_another_form_stays_as_it_is(file: Path, capsys: Output) -> None:
    table = f'domains = {{ "beta.example" = {{ public_key = "{KEY}", gateways = {{ b1 = "127.0.0.2:5900" }} }} }}\n'
    text = f'methods = {{ Price = "tree" }}\n{table}' + file.read_text().partition("[domains")[0]
    file.write_text(text)
    for words, header in (
        (("trust", str(file), "beta.example", "--send", "Departure"), '[domains."beta.example"]'),
        (("remove", str(file), "beta.example"), '[domains."beta.example"]'),
        (("method", str(file), "Price", "default"), "[methods]"),
    ):
        capsys.readouterr()
        assert run(["federation", *words]) == 2
        assert f"stays as it is: it has no table of its own with the line {header}" in one_line(capsys.readouterr().err)
        assert file.read_text() == text


def test_new_keys_and_gateways_of_a_known_domain(file: Path, capsys: Output) -> None:
    other = KeyPair(b"\x09" * 32).public.hex()
    words = ["--name", "beta.example", "--public-key", other, "--gateway", "b2=127.0.0.9:5900", "--send", "Departure"]
    assert run(["federation", "add", str(file), *words]) == 2
    assert "beta.example is in the federation already; 'trust' changes what is shared" in one_line(
        capsys.readouterr().err
    )
    assert run(["federation", "add", str(file), *words, "--replace"]) == 0
    found = read_federation(file).settings.domains["beta.example"]
    assert (found.public_key, found.gateways) == (other, {"b2": "127.0.0.9:5900"})
    assert (found.receive, found.send) == (("Price",), ("Departure",))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("init", "new.toml", "--name", "Alpha"), "--gateway: none is given"),
        (("init", "new.toml", "--name", "Alpha", "--gateway", "a1=127.0.0.1:1"), "name: 'Alpha' is not a domain"),
        (("init", "new.toml", "--name", "a", "--gateway", "127.0.0.1:1"), "'127.0.0.1:1' is not NAME=HOST:PORT"),
        (("init", "new.toml", "--name", "a", "--gateway", "g=x"), "--gateway.g: 'x' cannot be used"),
        (
            ("init", "new.toml", "--name", "a", "--gateway", "g=127.0.0.1:1", "--gateway", "g=127.0.0.1:2"),
            "--gateway: 'g' is given twice",
        ),
        (("init", "new.key", "--name", "a", "--gateway", "g=127.0.0.1:1"), "new.key has the name of the key"),
        (("card", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("add", "FILE"), "no domain given; give its CARD, or --name, --public-key and --gateway"),
        (("add", "FILE", "some.card", "--name", "x"), "the card has them; give the card or the options"),
        (("add", "FILE", "some.card"), "some.card cannot be read"),
        (("add", "FILE", "FILE"), "unknown key"),
        (("remove", "FILE", "gamma.example"), "has no foreign domain 'gamma.example' (expected beta.example)"),
        (("trust", "FILE", "gamma.example"), "has no foreign domain 'gamma.example' (expected beta.example)"),
        (("show", "FILE", "gamma.example"), "has no foreign domain 'gamma.example' (expected beta.example)"),
        (("trust", "FILE", "beta.example", "--no-receive", "X"), "--no-receive: 'X' is none of these types (expected"),
        (("trust", "FILE", "beta.example", "--no-send", "X"), "--no-send: 'X' is none of these types (there is none)"),
        (
            ("trust", "FILE", "beta.example", "--send", "X", "--no-send", "X"),
            "--no-send: 'X' is also given to --send; leave out one of them",
        ),
        (("trust", "FILE", "beta.example", "--send", "X*"), "domains.beta.example.send: 'X*' has a wildcard"),
        (("trust", "FILE", "beta.example", "--events-per-s-max", "x"), "--events-per-s-max: invalid value 'x'"),
        (("trust", "FILE", "beta.example", "--events-per-s-max", "nan"), "events_per_s_max: nan is out of range"),
        (("trust", "FILE", "beta.example", "--events-per-s-max", "inf"), "events_per_s_max: inf is out of range"),
        (("trust", "FILE", "beta.example", "--distance-ms", "inf"), "distance_ms: inf is out of range"),
        (("trust", "FILE", "beta.example", "--distance-ms", "-1"), "distance_ms: -1.0 is out of range"),
        (("method", "FILE", "a.*", "tree"), "methods: 'a.*' has a wildcard"),
    ],
)
def test_wrong_words_are_one_line_and_change_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, words: tuple[str, ...], error: str
) -> None:
    monkeypatch.chdir(file.parent)
    before = {path: path.read_bytes() for path in file.parent.iterdir()}
    capsys.readouterr()
    assert run(["federation", *("federation.toml" if word == "FILE" else word for word in words)]) == 2
    assert error in one_line(capsys.readouterr().err)
    assert {path: path.read_bytes() for path in file.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("card", "error"),
    [
        ("x = " + "[" * 60_000, "not a file of settings: its values are nested too deeply"),
        ('{"name": ' + "[" * 60_000, "not a card: "),
        ("{}", "not a card: Object missing required field"),
        ('{"name": "g", "public_key": "k", "gateways": {}, "send": []}', "unknown field `send`"),
        ('name = "g"\n', "public_key and gateways must be given"),
        ('name = "g"\npublic_key = "k"\n[gateways]\ng = "127.0.0.5:1"\n', "domains.g.public_key: it is not a public"),
        ('"\\u001b[2J" = 1\n', "unknown key"),
        ("#" * (CARD_BYTES_MAX + 1), "is longer than a card"),
    ],
)
def test_unusable_cards_are_one_line(file: Path, capsys: Output, card: str, error: str) -> None:
    path = file.parent / "g.card"
    path.write_text(card)
    before = file.read_text()
    capsys.readouterr()
    assert run(["federation", "add", str(file), str(path)]) == 2
    shown = one_line(capsys.readouterr().err)
    assert error in shown
    assert "\x1b" not in shown
    assert file.read_text() == before


def test_options_of_a_server_in_a_federation(file: Path, tmp_path: Path) -> None:
    options = {"users": tmp_path / "users", "federation": file, "federation_gateway": "a1"}
    given = given_to(ServerSettings, options, None)
    assert (given["federation"], given["federation_gateway"]) == (file, "a1")
    settings = tmp_path / "broker.toml"
    settings.write_text('federation = "federation.toml"\nfederation_key = "own.key"\nusers = {}\n')
    given = given_to(ServerSettings, {}, settings)
    assert (given["federation"], given["federation_key"]) == (file, tmp_path / "own.key")


def test_commands_and_the_file_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    page = (Path(__file__).parents[2] / "docs" / "federation.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    wanderbus (federation (?!status).+)$", page, re.MULTILINE)
    assert len(commands) == 24
    third = ["federation init gamma/federation.toml --name gamma.example --gateway g1=127.0.0.3:5900"]
    for command in [*third, "federation card gamma/federation.toml > gamma.card", *commands]:
        words, _, target = command.partition(" > ")
        assert run(words.split()) == 0
        shown = capsys.readouterr().out
        if target:
            Path(target).write_text(shown)
    alpha, beta = (read_federation(Path(name, "federation.toml")) for name in ("alpha", "beta"))
    assert (alpha.sends("gamma.example"), dict(alpha.links_of("a1"))) == (frozenset({"Departure"}), {})
    assert list(alpha.looked_up) == ["beta.example"]
    assert alpha.settings.domains["beta.example"].visitors == "move"
    assert alpha.sends("beta.example") >= beta.receives("alpha.example") == frozenset({"Departure"})
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    Path("page.toml").write_text(text)
    found = read_federation(Path("page.toml"))
    assert (found.method_of("Departure"), found.method_of("Price")) == ("rendezvous", "multicast")
    assert sorted(found.links_of("a1")) == ["beta.example/b1", "beta.example/b2"]
