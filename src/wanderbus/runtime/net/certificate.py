"""A server's self-signed certificate; peers identify it by its fingerprint in SDP (RFC 8122 3.1)."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from wanderbus.errors import StorageError
from wanderbus.runtime.system_random import wall_us

_NAME: Final = "data-channel.pem"
_VALID_DAYS: Final = 36_500
"""Validity of the certificate. Peers check only the fingerprint, but RFC 5280 4.1.2.5 requires an end."""


class OwnCertificate(msgspec.Struct, frozen=True):
    """A PEM file with the key and the certificate, in the form that ``server_tls`` reads."""

    file: Path
    fingerprint: bytes
    """SHA-256 of the certificate in DER (RFC 8122 5)."""


def own_certificate(directory: Path) -> OwnCertificate:
    """Return the certificate kept in ``directory``; create it the first time, readable by its owner only.

    Raises :class:`StorageError` naming the file that cannot be used.
    """
    file = directory / _NAME
    try:
        try:
            pem = file.read_bytes()
        except FileNotFoundError:
            pem = _make()
            _write(file, pem)
    except OSError as error:
        raise StorageError(f"{file} cannot be read or created: {error.strerror}; make it accessible") from None
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        key = serialization.load_pem_private_key(pem, password=None)
        if key.public_key() != certificate.public_key():
            raise ValueError("the key does not belong to the certificate")
    except (ValueError, TypeError) as error:
        raise StorageError(
            f"{file} does not hold a certificate and its key ({error}); delete it; the next start creates another"
        ) from None
    return OwnCertificate(file, certificate.fingerprint(hashes.SHA256()))


def _make() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "wanderbus data channel")])
    today = datetime.datetime.fromtimestamp(wall_us() / 1e6, datetime.UTC).replace(microsecond=0)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def _write(file: Path, data: bytes) -> None:
    """Write the file as a whole or not at all; others can read it at no time."""
    draft = file.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    draft.replace(file)
