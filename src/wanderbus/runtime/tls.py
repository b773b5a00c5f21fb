"""TLS contexts: from certificate files (RFC 3261 26.2.1, RFC 5922 7), or for fingerprints (RFC 8122).

A client always verifies whom it talks to.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from wanderbus.errors import ConfigurationError


def server_tls(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """Return the context of a server that shows the chain in ``certificate``, in PEM as the ``key``.

    The key is looked for in the file of the certificate when there is no other.

    Raises :class:`ConfigurationError` naming the file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, certificate, key)
    return context


def client_tls(ca_file: Path | None = None) -> ssl.SSLContext:
    """Return the context of a client that trusts the authorities in ``ca_file``, those of the system when None.

    Raises :class:`ConfigurationError` naming the file that cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:
        raise ConfigurationError(f"the file of authorities {ca_file} cannot be used: {_reason(error)}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def fingerprint_tls() -> ssl.SSLContext:
    """Return the context of a client that compares the certificate's fingerprint itself, right after the handshake.

    Who signed the certificate, and for whom, plays no part: what announced the fingerprint vouches for it (RFC 8122
    3.1).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    for file in (certificate, key or certificate):
        if not file.is_file():
            raise ConfigurationError(f"{file} cannot be used for TLS: there is no such file")
    try:
        # A key under a password would be asked for on the terminal, in the middle of a server's start.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ConfigurationError(
            f"{certificate} and {key or 'the key in it'} cannot be used for TLS: {_reason(error)}; give a PEM "
            "certificate and its key, which must not have a password"
        ) from None


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
