"""The file of users: digests in place of passwords, changed at once, and read again when it has changed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files import users_file, users_reports
from wanderbus.runtime.files.users_file import Users, change_user, follow, read_users
from wanderbus.runtime.files.users_reports import server_reports, version_of
from wanderbus.sip.authentication.digest import HASHED, ha1
from wanderbus.sip.message.uri import canonical_uri


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
    assert (set(users), users["alice"]) == ({"alice"}, "secret")
    error = f"{path}, line 1: write name:password"
    assert [record.message for record in caplog.records if "cannot read" in record.message] == [
        "cannot read the changed users file; 1 users stay as they were, and 1 are removed that it does not name: "
        + error
    ]
    assert users.report()[2] == error
    path.unlink()
    users.look()
    assert len(users) == 1
    path.write_text("bob:hunter2\n")
    users.look()
    assert (set(users), users.report()[2]) == ({"bob"}, None)


def test_a_removed_user_is_removed_although_another_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("alice:secret\nbob:hunter2\n")
    users = Users(path, domain="localhost", taken="broker")
    change_user(path, "carol", "example.org", "third")
    change_user(path, "bob", "", None)
    users.look()
    assert set(users) == {"alice"}
    path.write_bytes(b"bob:\xff\n")
    users.look()
    assert set(users) == {"alice"}


@pytest.mark.parametrize(
    ("name", "in_address"),
    [("jürgen", "j%C3%BCrgen"), ("a@b", "a%40b"), ('al"ice', "al%22ice"), ("a%2Bb", "a+b"), ("a%zz", "a%25zz")],
)
def test_a_name_that_can_never_log_in_is_refused_with_the_name_that_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, in_address: str
) -> None:
    path = tmp_path / "users"
    with pytest.raises(ConfigurationError, match="cannot be the name of a user: in a SIP address the name is") as found:
        change_user(path, name, "localhost", "secret")
    assert str(found.value).endswith(f" {in_address}")
    assert not path.exists()
    change_user(path, in_address, "localhost", "secret")
    assert canonical_uri(f"{in_address}@localhost") == f"sip:{in_address}@localhost"
    path.write_text(f"{name}:secret\n")
    path.chmod(0o600)
    Users(path, domain="localhost", taken=None)
    assert [record.message for record in caplog.records] == [
        f"{path}: the user {name!r} can never log in: in a SIP address the name is {in_address}"
    ]
    change_user(path, name, "", None)
    assert path.read_text() == ""


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_bytes(b"\xef\xbb\xbfalice:secret\n")
    assert set(read_users(path)) == {"alice"}
    change_user(path, "alice", "localhost", "other")
    assert path.read_bytes().startswith(b"alice:$HA1$")


def test_a_server_reports_what_it_has_read_as_long_as_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(users_file, "LOOK_S", 0.02)
    path = tmp_path / "users[1]"
    path.write_text("alice:secret\n")
    (tmp_path / ".users[1].0123abcd.report").write_text("{}")

    async def story() -> None:
        following = follow(Users(path, domain="localhost", taken=None))
        assert following is not None
        await asyncio.sleep(0.05)
        path.write_text("alice\n")
        assert not (tmp_path / ".users[1].0123abcd.report").exists()
        (report,) = await server_reports(path)
        assert (report.process, report.domain, report.version) == (os.getpid(), "localhost", version_of(path))
        assert report.refused == f"{path}, line 1: write name:password"
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert await server_reports(path) == []
        assert os.listdir(tmp_path) == ["users[1]"]
        monkeypatch.setattr(users_reports, "lock_file", refuse)
        path.with_name("others").touch(0o600)
        following = follow(Users(path.with_name("others"), domain="localhost", taken=None))
        assert following is not None
        await asyncio.sleep(0.05)
        assert (await server_reports(path.with_name("others")), following.done()) == ([], False)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    def refuse(path: Path) -> int:
        raise PermissionError(13, "Permission denied")

    asyncio.run(story())
    assert "does not learn whether this server uses a changed file" in caplog.text
