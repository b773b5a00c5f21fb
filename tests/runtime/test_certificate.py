"""The certificate of a server's data channel: made once, kept, and known by its fingerprint (RFC 8122)."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest

from wanderbus.errors import StorageError
from wanderbus.runtime.net.certificate import own_certificate
from wanderbus.runtime.net.tls import server_tls


def test_it_is_made_once_and_kept_for_its_owner_alone(tmp_path: Path) -> None:
    made = own_certificate(tmp_path)
    assert made.file.parent == tmp_path
    assert made.file.stat().st_mode & 0o777 == 0o600
    assert own_certificate(tmp_path) == made
    assert list(tmp_path.iterdir()) == [made.file]


def test_each_directory_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert own_certificate(tmp_path).fingerprint != own_certificate(tmp_path / "other").fingerprint


def test_the_fingerprint_is_of_what_tls_shows(tmp_path: Path) -> None:
    made = own_certificate(tmp_path)
    text = made.file.read_text()
    der = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT") :])
    assert made.fingerprint == hashlib.sha256(der).digest()
    server_tls(made.file)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    made = own_certificate(tmp_path)
    whole = made.file.read_bytes()
    for damaged in (b"", whole[:100], whole[whole.index(b"-----BEGIN CERT") :], whole[:-200]):
        made.file.write_bytes(damaged)
        with pytest.raises(StorageError, match=r"data-channel\.pem.*delete it"):
            own_certificate(tmp_path)
    with pytest.raises(StorageError, match=r"data-channel\.pem"):
        own_certificate(tmp_path / "missing")


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    made, other = own_certificate(tmp_path), own_certificate(tmp_path / "other")
    key, _, _ = made.file.read_bytes().partition(b"-----BEGIN CERT")
    _, begin, certificate = other.file.read_bytes().partition(b"-----BEGIN CERT")
    made.file.write_bytes(key + begin + certificate)
    with pytest.raises(StorageError, match="the key does not belong to the certificate"):
        own_certificate(tmp_path)


def test_a_draft_left_by_a_crash_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "data-channel.new").write_bytes(b"half")
    made = own_certificate(tmp_path)
    assert list(tmp_path.iterdir()) == [made.file]
