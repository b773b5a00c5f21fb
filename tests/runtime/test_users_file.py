"""The file of users: digests in place of passwords, changed at once, and read again when it has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.users_file import Users, change_user, read_users
from wanderbus.sip.authentication.digest import HASHED, ha1


def test_a_changed_user_has_digests_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("# people\nalice:secret\nbob:hunter2\n")
    path.chmod(0o644)
    change_user(path, "alice", "example.org", "other")
    change_user(path, "carol", "example.org", "third")
    text = path.read_text()
    assert text.startswith("# people\nalice:$HA1$example.org$")
    assert not {"secret", "other", "third"} & set(text.replace("$", " ").replace(":", " ").split())
    assert path.stat().st_mode & 0o777 == 0o600
    users = read_users(path, domain="Example.org")
    assert users["alice"] == {name: ha1("alice", "example.org", "other", name) for name in HASHED}
    assert users["bob"] == "hunter2"
    change_user(path, "bob", "", None)
    assert set(read_users(path)) == {"alice", "carol"}
    assert path.read_text().count("\n") == 3
    assert os.listdir(tmp_path) == ["users"]


@pytest.mark.parametrize("name", ["", "two words", "a:b", "#a"])
def test_a_name_that_cannot_stand_in_the_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        change_user(tmp_path / "users", name, "localhost", "secret")
    assert not (tmp_path / "users").exists()


def test_digests_of_another_domain_or_damaged_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "users"
    change_user(path, "alice", "example.org", "secret")
    with pytest.raises(ConfigurationError, match=r"line 1: .*'example.org', not 'localhost'.*passwd alice"):
        read_users(path, domain="localhost")
    path.write_text(path.read_text().replace("sha-256=", "sha-256=x"))
    with pytest.raises(ConfigurationError, match="line 1: the digests are damaged"):
        read_users(path)


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "users"
    path.write_text("alice:secret\n")
    users = Users(path, domain="localhost", taken="broker")
    change_user(path, "bob", "localhost", "hunter2")
    users.look()
    assert set(users) == {"alice", "bob"}
    path.write_text("alice\n")
    users.look()
    users.look()
    assert (set(users), users["alice"]) == ({"alice", "bob"}, "secret")
    assert [record.message for record in caplog.records if "stay valid" in record.message] == [
        f"cannot read the changed users file, the previous users stay valid: {path}, line 1: write name:password"
    ]
    path.unlink()
    users.look()
    assert len(users) == 2
