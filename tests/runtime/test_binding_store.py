"""Registrations on disk survive the end of their process (SPEC D-12)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import apsw
import msgspec
import pytest

from wanderbus.errors import StorageError
from wanderbus.runtime.files.binding_store import BindingStore
from wanderbus.sip.proxy.bindings import Binding

ALICE, BOB, CAROL = "sip:alice@example.org", "sip:bob@example.org", "sip:carol@example.org"
PHONE = Binding("sip:alice@10.0.0.1:7", 150.0, "call", 7, "<urn:uuid:1>", 0.5)
TABLET = Binding("sip:alice@10.0.0.2:7", 130.0, "other", 3)


def stored(path: Path, wall_s: float, now: float) -> dict[str, tuple[Binding, ...]]:
    """Return the bindings that the next process would load if the file's owner were killed now."""
    with tempfile.TemporaryDirectory() as elsewhere:
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copy(file, elsewhere)
        return loaded(Path(elsewhere, path.name), wall_s, now)


def loaded(path: Path, wall_s: float, now: float) -> dict[str, tuple[Binding, ...]]:
    store = BindingStore.open(path)
    found = store.load(wall_s, now)
    store.close()
    return found


def test_the_remaining_time_is_kept_from_clock_to_clock(tmp_path: Path) -> None:
    """Saved with 50 s and 30 s left; a monotonic time has no meaning in the next process."""
    path = tmp_path / "bindings.db"
    store = BindingStore.open(path)
    store.save({ALICE: (PHONE, TABLET)}, wall_s=1_000_000.0, now=100.0)
    store.close()
    (phone, tablet) = stored(path, wall_s=1_000_010.0, now=3.0)[ALICE]
    assert phone.expires_at == pytest.approx(43.0)
    assert tablet.expires_at == pytest.approx(23.0)
    assert (phone.contact, phone.call_id, phone.cseq) == (PHONE.contact, "call", 7)
    assert (phone.instance, phone.q) == (PHONE.instance, 0.5)


def test_a_row_is_replaced_and_goes_with_its_last_binding(tmp_path: Path) -> None:
    path = tmp_path / "bindings.db"
    store = BindingStore.open(path)
    store.save({ALICE: (PHONE,), BOB: (TABLET,)}, 0.0, 0.0)
    store.save({ALICE: (TABLET,), BOB: ()}, 0.0, 0.0)
    assert stored(path, 0.0, 0.0) == {ALICE: (TABLET,)}
    store.close()


def test_saved_bindings_survive_without_a_close(tmp_path: Path) -> None:
    """A killed process loses no write that it had passed to the operating system."""
    path = tmp_path / "bindings.db"
    store = BindingStore.open(path)
    store.save({ALICE: (PHONE,)}, 0.0, 0.0)
    assert stored(path, 0.0, 0.0) == {ALICE: (PHONE,)}
    store.close()


@pytest.mark.parametrize("damage", [b"", b"no database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_damaged_file_is_moved_aside_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    """Its bindings are registered again by the devices themselves."""
    path = tmp_path / "bindings.db"
    path.write_bytes(damage)
    store = BindingStore.open(path)
    store.save({ALICE: (PHONE,)}, 0.0, 0.0)
    assert store.load(0.0, 0.0) == {ALICE: (PHONE,)}
    store.close()
    assert (tmp_path / "bindings.db.damaged").read_bytes() == damage
    (line,) = caplog.messages
    assert line.startswith(f"{path} cannot be used (")
    assert line.endswith("): moved it to bindings.db.damaged; users register again")
    assert "\n" not in line


def test_a_file_of_another_layout_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "bindings.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE bindings(aor TEXT PRIMARY KEY, row BLOB, more TEXT)")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert loaded(path, 0.0, 0.0) == {}
    assert (tmp_path / "bindings.db.damaged").exists()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE bindings SET row = replace(row, '10.0.0.2', '10.0.0.3') WHERE aor = 'sip:bob@example.org'",
        "UPDATE bindings SET row = '{\"nonsense\": 1}' WHERE aor = 'sip:bob@example.org'",
        "UPDATE bindings SET row = CAST(x'ff' AS TEXT) WHERE aor = 'sip:bob@example.org'",
        "UPDATE bindings SET aor = 'sip:rob@example.org' WHERE aor = 'sip:bob@example.org'",
        "UPDATE bindings SET aor = CAST(x'ff' AS TEXT) WHERE aor = 'sip:bob@example.org'",
    ],
)
def test_a_row_that_is_not_as_it_was_written_costs_nobody_else_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    path = tmp_path / "bindings.db"
    store = BindingStore.open(path)
    store.save({ALICE: (PHONE,), BOB: (TABLET,)}, 0.0, 0.0)
    store.close()
    connection = apsw.Connection(str(path))
    connection.execute(change)
    connection.close()
    for _ in range(2):
        assert loaded(path, 0.0, 0.0) == {ALICE: (PHONE,)}
    (line,) = caplog.messages
    assert line == f"{path}: discarded damaged registrations of 1 users; they register again"


def test_a_file_without_checksums_is_taken_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "bindings.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE bindings(aor TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("INSERT INTO bindings VALUES(?, ?)", (ALICE, msgspec.json.encode((PHONE,)).decode()))
    connection.close()
    for _ in range(2):
        assert loaded(path, 0.0, 0.0) == {ALICE: (PHONE,)}
    assert caplog.messages == []


def test_a_byte_that_was_changed_is_reported_or_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "bindings.db"
    store = BindingStore.open(path)
    store.save({ALICE: (PHONE,), BOB: (TABLET,)}, 0.0, 0.0)
    store.close()
    whole = path.read_bytes()
    for place in (*range(100), *range(100, len(whole), 61)):
        for file in tmp_path.iterdir():
            file.unlink()
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        caplog.clear()
        found = loaded(path, 0.0, 0.0)
        store = BindingStore.open(path)
        store.save({CAROL: (PHONE,)}, 0.0, 0.0)
        assert store.load(0.0, 0.0) == {**found, CAROL: (PHONE,)}
        store.close()
        assert caplog.messages or found == {ALICE: (PHONE,), BOB: (TABLET,)}, place
        assert found.items() <= {ALICE: (PHONE,), BOB: (TABLET,)}.items()


def test_a_directory_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be used") as failed:
        BindingStore.open(tmp_path / "missing" / "bindings.db")
    assert "\n" not in str(failed.value)


def test_a_file_that_cannot_be_written_is_one_line_and_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "bindings.db"
    store = BindingStore.open(path)
    store.save({ALICE: (PHONE,)}, 0.0, 0.0)
    store._connection.execute("PRAGMA max_page_count = 1")
    many = {f"sip:{number}@example.org": (PHONE,) for number in range(1_000)}
    with pytest.raises(StorageError, match="cannot be written"):
        store.save({ALICE: (TABLET,), **many}, 0.0, 0.0)
    assert store.load(0.0, 0.0) == {ALICE: (PHONE,)}
    store.close()


def test_a_file_has_one_registrar_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "bindings.db"
    store = BindingStore.open(path)
    with pytest.raises(StorageError, match="in use by another process"):
        BindingStore.open(path)
    store.close()
    BindingStore.open(path).close()
