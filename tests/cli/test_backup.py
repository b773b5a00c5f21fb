"""``wanderbus backup`` and ``wanderbus restore``: what they make, what they say it costs, and what they refuse."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.published import published
from wanderbus.cli.application import run
from wanderbus.event import Event
from wanderbus.records import Acknowledged, Notified, Record, Started, encode_record
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.log_readers import LogReader, register_reader

USER = "sip:u@x"


class Server:
    """Log of a server, which is opened for each write."""

    def __init__(self, data: Path, name: str = "wb") -> None:
        self.data, self.name = data, name
        self.write(Started(at_us=1_000_000, server=name, incarnation=1))

    def write(self, *records: Record) -> None:
        files = ServerFiles.open(self.data, new_name=self.name)
        first = files.log.next_offset
        files.log.append([(offset, each.at_us, encode_record(each)) for offset, each in enumerate(records, first)])
        files.log.sync()
        files.close()

    def publish(self, *numbers: int, subject: str = "News") -> None:
        self.write(
            *(
                published(
                    Event(subject, {"n": n}),
                    number=n,
                    at_us=n * 1_000_000,
                    notified=(Notified(USER, "default", n, ("s",)),),
                )
                for n in numbers
            )
        )

    def acknowledge(self, number: int) -> None:
        self.write(Acknowledged(at_us=0, user=USER, session="default", device="d", number=number))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.chdir(tmp_path)
    return Server(tmp_path / "wanderbus-data")


def lines(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_a_backup_is_restored_where_there_is_nothing(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.publish(1, 2)
    before = contents(server.data)
    assert run(["backup", "b", "--json"]) == 0
    assert run(["restore", "b", "--data-dir", "new/data", "--json"]) == 0
    made, cost, done = lines(capsys)
    assert (made["backup"], made["server"], made["first"], made["next"]) == ("b", "wb", 0, 3)
    assert cost["cost"] is None
    assert cost["last_us"] == 2_000_000
    assert done == {"restored": "new/data", "replaced": None}
    restored = contents(Path("new/data"))
    changed = {name for name in restored if restored[name] != before.get(name)}
    assert changed == {"state.db", "restored"}  # SQLite counts its changes, and the server reads the mark
    assert {"server.json", "reset.key", "log/durable", f"log/{0:020}.seg"} <= restored.keys()
    Server(Path("new/data"))


def test_the_cost_is_said_before_and_alone(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.publish(1)
    assert run(["backup", "b"]) == 0
    server.publish(2, 3)
    server.publish(4, subject="Rain")
    server.acknowledge(3)
    register_reader(server.data / "log", LogReader("lake", 5, 1, 1.0))
    before = contents(server.data)
    capsys.readouterr()
    assert run(["restore", "b", "--dry-run", "--json"]) == 0
    (found,) = lines(capsys)
    cost = found["cost"]
    assert (cost["records"], cost["accepted"], cost["subjects"]) == (4, 3, {"News": 2, "Rain": 1})
    assert cost["sessions"] == [{"user": USER, "session": "default", "notifications": 3, "taken": 2}]
    assert cost["readers"] == ["lake"]
    assert (cost["is_other_history"], cost["unknown"]) == (False, "")
    assert run(["restore", "b", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "lost: 4 records up to 1970-01-01T00:00:00Z, with 3 events acknowledged to publishers here, 0 from other "
        "servers, 0 subscriptions and 0 schemas",
        "  subject News: 2 events",
        "  subject Rain: 1 event",
        f"  session default of {USER}: 3 notifications, 2 taken by its agents, 1 not",
        "  reader lake: has read records that the backup lacks, and will refuse the restored log",
    ]
    assert contents(server.data) == before


def test_data_are_replaced_only_when_asked_and_moved_aside(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backup", "b"]) == 0
    server.publish(1)
    before = contents(server.data)
    assert run(["restore", "b"]) == 2
    assert "wanderbus-data has data and is not replaced; --replace moves them aside" in capsys.readouterr().err
    assert contents(server.data) == before
    assert run(["restore", "b", "--replace"]) == 0
    assert "restored wanderbus-data; the former data are in wanderbus-data.replaced-1" in capsys.readouterr().out
    assert contents(Path("wanderbus-data.replaced-1")) == before
    assert contents(server.data).keys() == contents(Path("b")).keys() - {"backup.json"} | {"restored"}
    assert run(["restore", "b", "--replace"]) == 0
    assert Path("wanderbus-data.replaced-2").is_dir()
    assert not list(Path().glob(".*"))


def test_a_backup_of_restored_data_that_no_server_has_read_keeps_their_mark(server: Server) -> None:
    (server.data / "restored").write_text("from tape")
    assert run(["backup", "b"]) == 0
    server.publish(1)
    assert run(["restore", "b", "--replace"]) == 0
    assert (server.data / "restored").read_text() == "from tape"


def test_a_running_server_is_not_replaced(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    files = ServerFiles.open(server.data)
    assert run(["backup", "b"]) == 0
    before = contents(server.data)
    assert run(["restore", "b", "--replace"]) == 1
    assert "a server uses wanderbus-data; stop it first" in capsys.readouterr().err
    assert contents(server.data) == before
    files.close()


def test_a_changed_backup_is_refused(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backup", "b"]) == 0
    with Path("b/reset.key").open("ab") as file:
        file.write(b"!")
    assert run(["restore", "b", "--data-dir", "new"]) == 1
    assert "b/reset.key is not what the backup wrote; use another backup" in capsys.readouterr().err
    Path("b/reset.key").unlink()
    assert run(["restore", "b", "--data-dir", "new", "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["error"]["type"] == "StorageError"
    assert not Path("new").exists()


def test_a_description_that_leads_out_of_the_backup_is_refused(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["backup", "b"]) == 0
    manifest = Path("b/backup.json")
    for name in ("../outside", "/etc/outside"):
        changed = json.loads(manifest.read_bytes())
        changed["files"][name] = {"bytes": 0, "sha256": ""}
        manifest.write_text(json.dumps(changed))
        assert run(["restore", "b", "--data-dir", "new"]) == 1
        assert "names a file outside of the backup" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "it has no backup.json"), (b"{", "is damaged"), (b'{"format": 9}', "has format 9, this version reads 1")],
)
def test_a_directory_that_is_no_backup_is_refused(
    server: Server, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
) -> None:
    Path("b").mkdir()
    if content is not None:
        Path("b/backup.json").write_bytes(content)
    assert run(["restore", "b", "--data-dir", "new"]) == 1
    assert words in capsys.readouterr().err


def test_other_data_are_not_replaced(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backup", "b"]) == 0
    Server(tmp_path / "other", "s2")
    assert run(["restore", "b", "--data-dir", "other", "--replace"]) == 2
    assert "other is of the server s2, the backup of wb; give another directory" in capsys.readouterr().err
    Path("home").mkdir()
    Path("home/letter").touch()
    assert run(["restore", "b", "--data-dir", "home", "--replace"]) == 2
    assert "home is not the data directory of a server, and not replaced" in capsys.readouterr().err
    assert Path("home/letter").exists()


def test_a_log_that_was_restored_since_is_recognised(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backup", "first"]) == 0
    server.publish(1, 2)
    assert run(["backup", "second"]) == 0
    assert run(["restore", "first", "--replace"]) == 0
    capsys.readouterr()
    assert run(["restore", "second", "--dry-run", "--json"]) == 0
    server.publish(7, 8, 9)
    assert run(["restore", "second", "--dry-run", "--json"]) == 0
    shorter, longer = (found["cost"] for found in lines(capsys))
    assert (shorter["is_other_history"], shorter["records"]) == (True, 1)
    assert (longer["is_other_history"], longer["records"], longer["accepted"]) == (True, 4, 3)


def test_present_data_that_cannot_be_read_do_not_prevent_it(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.publish(1)
    assert run(["backup", "b"]) == 0
    server.publish(2, 3)
    segment = server.data / "log" / f"{0:020}.seg"
    os.truncate(segment, segment.stat().st_size - 3)
    (server.data / "server.json").unlink()
    capsys.readouterr()
    assert run(["restore", "b", "--replace", "--json"]) == 0
    found, _ = lines(capsys)
    assert found["cost"]["records"] == 1
    assert "cannot be read" in found["cost"]["unknown"]
