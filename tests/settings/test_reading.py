"""A file of settings: valid content, and the errors of invalid content (SPEC Q-01)."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from wanderbus.config import (
    AgentArguments,
    AgentSettings,
    ProxyArguments,
    ProxySettings,
    ServerArguments,
    ServerSettings,
)
from wanderbus.errors import ConfigurationError
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.files.config_files import PASSWORD_VARIABLE, load_agent
from wanderbus.settings import keys
from wanderbus.settings.keys import OPTIONAL, table_of
from wanderbus.settings.reading import make, read
from wanderbus.settings.writing import sample, toml

FILE = Path("/etc/wanderbus/x.toml")
KINDS = (AgentSettings, ServerSettings, ProxySettings)


def agent(text: str = "") -> AgentSettings:
    return make(AgentSettings, read(AgentSettings, f'uri = "sip:alice@localhost"\n{text}', FILE))


def server(text: str) -> ServerSettings:
    given = {"domain": "localhost", "users": {}, "data_dir": Path("data")}
    return make(ServerSettings, given | read(ServerSettings, text, FILE))


def test_a_table_with_one_key_keeps_the_other_defaults() -> None:
    broker = server("[broker.queue]\nnotifications_max = 5").broker
    queue = msgspec.structs.replace(BrokerConfig().queue, notifications_max=5)
    assert broker == BrokerConfig(queue=queue)
    assert queue.bytes_max is not None
    assert agent().rudp is None


def test_paths_are_relative_to_the_file() -> None:
    settings = server('users = "users.txt"\ndata_dir = "/var/lib/wanderbus"')
    assert (settings.users, settings.data_dir) == (FILE.parent / "users.txt", Path("/var/lib/wanderbus"))
    assert server('[users]\nalice = "secret"').users == {"alice": "secret"}


def test_none_is_no_bound() -> None:
    broker = server('[broker]\nsweep_s = "none"\n[broker.queue]\nbytes_max = "none"').broker
    assert broker is not None
    assert (broker.sweep_s, broker.queue.bytes_max) == (None, None)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[rudp]\nretry_max = 3", "rudp.retry_max: unknown key; did you mean rudp.retries_max?"),
        ("[queue]\nbytes_max = 3", "queue: unknown key; did you mean broker.queue.bytes_max?"),
        ("bytes_max = 3", "bytes_max: unknown key; did you mean broker.queue.bytes_max?"),
        ("zzzzzzzzz = 3", "zzzzzzzzz: unknown key; 'wanderbus config sample' shows all keys"),
        ('[broker]\nserver = "x"', "broker.server: unknown key; did you mean broker_user?"),
        ('[rudp]\nretries_max = "x"', "rudp.retries_max: invalid value 'x' (expected a whole number"),
        ("[rudp]\nretries_max = 1.5", "rudp.retries_max: invalid value 1.5 (expected a whole number"),
        ("[rudp]\nretries_max = true", "rudp.retries_max: invalid value true (expected a whole number"),
        ('[rudp]\nretries_max = "none"', "rudp.retries_max: invalid value 'none' (expected a whole number"),
        ("[rudp]\nretries_max = -1", "rudp.retries_max: -1 is below 0"),
        ("[broker]\nsweep_s = inf", 'broker.sweep_s: invalid value inf (expected a number or "none"'),
        ("[broker]\nsweep_s = nan", 'broker.sweep_s: invalid value nan (expected a number or "none"'),
        ("rudp = 3", "rudp: invalid value 3 (expected a table: write [rudp])"),
        ("[rudp]\nrtt_gain = 2", "rudp: rtt_gain and rtt_deviation_gain must be above 0 and at most 1"),
        ("[broker]\nsweep_s = 0", "broker: sweep_s must be above 0, or None"),
        ("[broker]\nlifetime_s_min = 2\nlifetime_s_max = 1", "broker: lifetime_s_max must not be less than"),
        ("[broker]\nsessions_max = 0", "broker: unacknowledged_max, sessions_max, devices_max and"),
        ("[broker]\nbacklog_per_s = 0", "broker: backlog_per_s must be above 0"),
        ("[broker]\nclock_slew_max = 1", "broker: clock_slew_max must be below 1"),
        ("port = 65536", "port: invalid value 65536 (expected a whole number from 0 to 65535"),
        ('tcp = "yes"', "tcp: invalid value 'yes' (expected true or false"),
        ("data_dir = 3", "data_dir: invalid value 3 (expected a path"),
        ('[broker.roles]\nbob = "boss"', "broker.roles.bob: invalid value 'boss' (expected \"operator\" or"),
        ("[users]\nbob = 42", "users.bob: invalid value (hidden) (expected a text)"),
        ("port = x", "not TOML: Invalid value (at line 1, column 8)"),
    ],
)
def test_a_fault_is_one_line_that_names_file_and_key_and_what_is_allowed(text: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        server(text)
    assert str(caught.value).startswith(f"{FILE}: {fault}")
    assert "\n" not in str(caught.value)


def test_missing_keys_are_named() -> None:
    with pytest.raises(ConfigurationError, match="domain and users must be given"):
        make(ServerSettings, {"data_dir": "data"})
    with pytest.raises(TypeError, match="nonsense"):
        make(AgentSettings, {"uri": "sip:alice@localhost", "nonsense": 1})


@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_loads_and_has_the_defaults(kind: type[msgspec.Struct]) -> None:
    given = read(kind, sample(kind), FILE)
    settings = make(kind, given)
    for key in table_of(kind).all_keys():
        value: Any = settings
        if key.path[0] in OPTIONAL:
            assert value.relay is None, "there is no such thing unless its table is there"
            continue
        for name in key.path:
            value = getattr(value, name)
        assert key.required or value == key.default, key.name
    assert not {"password", "password_file"} & given.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_q01_a_changed_value_of_the_sample_is_used(kind: type[msgspec.Struct]) -> None:
    """Every number and every switch of it is changed in turn; those of a feature that is off have no value."""
    lines = sample(kind).splitlines()
    keys = {key.name: key for key in table_of(kind).all_keys() if key.path[0] not in OPTIONAL}
    table, used = "", 0
    for place, line in enumerate(lines):
        if heading := re.fullmatch(r"\[(.+)\]", line):
            table = f"{heading[1]}."
        name, _, _ = line.partition(" = ")
        if (key := keys.get(table + name)) is None or type(key.default) not in (bool, int, float):
            continue
        default: Any = key.default
        changed = not default if type(default) is bool else default + 1 if type(default) is int else default * 0.999
        text = "\n".join([*lines[:place], f"{name} = {toml(changed)}", *lines[place + 1 :]])
        settings: Any = make(kind, read(kind, text, FILE))
        for each in key.path:
            settings = getattr(settings, each)
        assert settings == changed, key.name
        used += 1
    assert used > 10


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_explained_and_is_in_the_sample(kind: type[msgspec.Struct]) -> None:
    text = sample(kind)
    words = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("# "))
    for key in table_of(kind).all_keys():
        assert len(key.doc) > 10, key.name
        assert f"{key.path[-1]} = " in text or f"[{key.name}]" in text
        assert key.doc.replace("``", "").split(". ")[0].split(" (")[0].rstrip(".") in words, key.name


@pytest.mark.parametrize(
    ("kind", "arguments", "positional"),
    [
        (AgentSettings, AgentArguments, {"uri"}),
        (ProxySettings, ProxyArguments, set()),
        (ServerSettings, ServerArguments, set()),
    ],
)
def test_the_arguments_are_the_keys(kind: type[msgspec.Struct], arguments: Any, positional: set[str]) -> None:
    """A field's type may be wider as an argument, by a text for a path, and no narrower."""
    hints = get_type_hints(arguments)
    assert set(hints) | positional == set(kind.__struct_fields__)
    for field in msgspec.structs.fields(kind):
        if field.name in hints and field.default is not msgspec.NODEFAULT:
            assert (type(None) in getattr(hints[field.name], "__args__", ())) == (field.default is None), field.name


def test_reading_takes_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may be installed without its source; only the explanation of a key needs the source."""
    monkeypatch.setattr(keys, "_docs", None)
    table_of.cache_clear()
    assert agent("keepalive_s = 9\n[rudp]\nretries_max = 9").keepalive_s == 9.0


def test_secrets_are_not_shown() -> None:
    for settings in (agent('password = "hunter2"'), server('[users]\nalice = "hunter2"')):
        assert "hunter2" not in repr(settings)


class TestPassword:
    """The three sources of a password, and its confidentiality."""

    @pytest.fixture
    def file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
        (tmp_path / "word").write_text("from the file\nand more\n")
        (tmp_path / "word").chmod(0o600)
        file = tmp_path / "agent.toml"
        file.touch(0o600)
        return file

    def load(self, file: Path | None, text: str, **given: Any) -> object:
        if file is not None:
            file.write_text(text)
        return load_agent(file, {"uri": "sip:alice@localhost", **given}).password

    def test_places(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A parameter takes precedence over the environment, and the environment over the file."""
        assert self.load(file, "") is None
        assert self.load(file, 'password = "written"') == "written"
        assert self.load(file, 'password_file = "word"') == "from the file"
        assert self.load(file, 'password_file = "word"', password="given") == "given"
        assert self.load(file, 'password = "written"', password_file=file.parent / "word") == "from the file"
        monkeypatch.setenv(PASSWORD_VARIABLE, "around")
        assert self.load(file, 'password = "written"') == "around"
        assert self.load(file, 'password_file = "word"') == "around"
        assert self.load(file, "", password="given") == "given"
        assert self.load(None, "") is None

    def test_two_in_one_file(self, file: Path) -> None:
        with pytest.raises(ConfigurationError, match="password: password_file is set too; remove one of them"):
            self.load(file, 'password = "hunter2"\npassword_file = "word"')

    def test_a_file_without_one(self, file: Path) -> None:
        (file.parent / "word").write_text("\n")
        with pytest.raises(ConfigurationError, match="word: the first line is empty"):
            self.load(file, 'password_file = "word"')
        with pytest.raises(ConfigurationError, match="nowhere cannot be read: No such file"):
            self.load(file, 'password_file = "nowhere"')

    def test_others_who_can_read_it_are_warned_of(self, file: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            self.load(file, 'password = "hunter2"')
            self.load(file, 'password_file = "word"')
            assert caplog.messages == []
            file.chmod(0o640)
            self.load(file, "")
            assert caplog.messages == []
            self.load(file, 'password = "hunter2"')
            (file.parent / "word").chmod(0o604)
            self.load(file, 'password_file = "word"')
        assert [message.partition(" holds ")[0] for message in caplog.messages] == [
            str(file),
            str(file.parent / "word"),
        ]
        assert "hunter2" not in caplog.text


@pytest.mark.parametrize("value", [True, 7, 123_456, 0.25, 1e300, 'a "b" \\ \n é', (), ("a", "b"), {"a b": "c"}])
def test_toml_is_read_back_as_it_was_written(value: Any) -> None:
    import tomllib

    assert tomllib.loads(f"x = {toml(value)}")["x"] == (list(value) if isinstance(value, tuple) else value)
