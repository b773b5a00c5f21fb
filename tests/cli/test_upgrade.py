"""A restart of all servers: when a server is back, and which commands are refused (SPEC S-02)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.shell import one_line
from wanderbus.cli.application import run
from wanderbus.cli.domain.begun_upgrade import begun_upgrade, upgrade_ended
from wanderbus.cli.domain.servers_asked import ServerAnswer
from wanderbus.cli.domain.up import is_supervised
from wanderbus.cli.domain.upgrade import ServerSeen, links_of, missing
from wanderbus.errors import StorageError
from wanderbus.operator_rows import ProcessInfo, ServerInfo
from wanderbus.runtime.files.domain_file import create_domain
from wanderbus.runtime.files.file_modes import lock_file
from wanderbus.runtime.process_arguments import arguments_of, parent_of

FORMER = ProcessInfo("s1", "1", 100, 2)


PAIR = {("s1", "s2"), ("s2", "s1")}


def answer(server: str, *, started_us: int = 200, is_linked: bool = True) -> ServerAnswer[ServerSeen]:
    """Return the answer of a server that has links with all, but not with s9, which has left."""
    others = [
        ServerInfo(each, is_linked=is_linked and each != "s9", is_settled=True, is_linked_here=True)
        for each in ("s1", "s2", "s9")
        if each != server
    ]
    return ServerAnswer(server, "?", found=ServerSeen(ProcessInfo(server, "1", started_us, 2), others, []))


def test_s02_a_server_is_back_once_it_has_another_process_and_all_have_their_links() -> None:
    def why(*answers: ServerAnswer[ServerSeen]) -> str:
        return missing({each.server: each for each in answers}, FORMER, PAIR)

    assert why(answer("s1"), answer("s2", started_us=100)) == ""
    assert why(answer("s1", started_us=100), answer("s2")) == "s1 still has its former process"
    assert why(answer("s1"), answer("s2", is_linked=False)) == "s2 does not have its link with s1 yet"
    assert why(ServerAnswer("s1", "?", error="refused"), answer("s2")) == "s1 does not answer yet"


def test_links_that_a_server_did_not_have_before_and_those_with_servers_that_have_left_are_not_waited_for() -> None:
    seen = {"s1": answer("s1"), "s2": answer("s2", is_linked=False)}
    assert links_of(seen) == {("s1", "s2")}
    assert links_of(seen, lambda other: True) == PAIR
    assert missing(seen, FORMER, {("s1", "s2")}) == ""


def test_s02_an_upgrade_goes_on_where_it_was_interrupted_until_all_are_restarted(tmp_path: Path) -> None:
    assert begun_upgrade(tmp_path, {"s1": 1, "s2": 2}) == {"s1": 1, "s2": 2}
    assert begun_upgrade(tmp_path, {"s1": 8, "s2": 2, "s3": 3}) == {"s1": 1, "s2": 2}
    assert begun_upgrade(tmp_path, {"s1": 8, "s2": 9}) == {"s1": 1, "s2": 2}, "the last one may still drain"
    upgrade_ended(tmp_path)
    assert begun_upgrade(tmp_path, {"s1": 8, "s2": 10}) == {"s1": 8, "s2": 10}


@pytest.mark.parametrize("content", [b"{", b"[1]"])
def test_a_damaged_file_of_an_upgrade_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "upgrade.json").write_bytes(content)
    with pytest.raises(StorageError, match=r"upgrade.json is damaged; remove it"):
        begun_upgrade(tmp_path, {"s1": 1})


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="with --started-before no file is needed"):
        begun_upgrade(tmp_path / "gone", {"s1": 1})


def test_a_server_is_supervised_while_domain_up_holds_its_lock_and_the_process_is_its_own(tmp_path: Path) -> None:
    here, named = os.getpid(), arguments_of(os.getpid())[0]
    assert not is_supervised(tmp_path, named, here)
    assert not (tmp_path / "running").exists()
    assert lock_file(tmp_path / "running") is not None
    (tmp_path / "running").write_text(str(os.getppid()))
    assert is_supervised(tmp_path, named, here)
    assert not is_supervised(tmp_path, "s1 of another process", here)
    (tmp_path / "running").write_text(str(here))
    assert not is_supervised(tmp_path, named, here), "somebody else has started it"
    assert (arguments_of(2**30), parent_of(2**30)) == ((), 0)


def test_a_single_server_and_an_unusable_time_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone, pair = create_domain(tmp_path / "a", "localhost", 1), create_domain(tmp_path / "b", "localhost", 2)
    user = ("--user", "sip:alice@localhost", "--password", "x")
    assert run(["domain", "upgrade", "--event-domain", str(alone), *user]) == 2
    assert "the domain has one server" in one_line(capsys.readouterr().err)
    assert run(["domain", "upgrade", "--event-domain", str(pair), "--started-before", "noon", *user]) == 2
    assert "--started-before: invalid time 'noon'" in one_line(capsys.readouterr().err)
