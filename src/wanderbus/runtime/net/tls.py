"""TLS contexts: from certificate files (RFC 3261 26.2.1, RFC 5922 7), or for fingerprints (RFC 8122).

A client always verifies its peer.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wanderbus.errors import ConfigurationError, SIPParseError


def server_tls(
    certificate: Path, key: Path | None = None, *, peers: bool = False, peers_ca: Path | None = None
) -> ssl.SSLContext:
    """Return the context of a server that shows the chain in ``certificate``, in PEM like the ``key``.

    Without ``key`` the key is read from the file of the certificate. With ``peers`` clients may show a certificate of
    an authority in ``peers_ca``, or of the system's authorities when None; any other certificate closes the connection.

    Raises :class:`ConfigurationError` naming the file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, certificate, key)
    if peers:
        _load_authorities(context, peers_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def shows_fingerprint(tls: ssl.SSLObject | None, fingerprint: bytes) -> bool:
    """Return whether the peer has the certificate with this SHA-256 (RFC 8122 6.2)."""
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    return certificate is not None and hashlib.sha256(certificate).digest() == fingerprint


def peer_tls(certificate: Path, key: Path | None, ca_file: Path | None) -> ssl.SSLContext:
    """Return the context of a SIP server that connects to those of other domains, and shows ``certificate`` to them.

    An authority in ``ca_file`` must have signed their certificates. The domains that these name are compared after the
    handshake, since that comparison involves more than a host name (:func:`sip_domains`).

    Raises :class:`ConfigurationError` naming the file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    _load_authorities(context, ca_file)
    _load_chain(context, certificate, key)
    return context


def sip_domains(tls: ssl.SSLObject | None) -> tuple[str, ...]:
    """Return the SIP domains that the verified certificate of the peer names, in lower case (RFC 5922 7.1).

    SIP URIs without a user take precedence; DNS names count only if there are none. Wildcards match no domain (7.2),
    and the common name is ignored.
    """
    certificate = None if tls is None else tls.getpeercert()
    names: Any = certificate.get("subjectAltName", ()) if certificate else ()
    return domains_among(names)


def domains_among(names: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the SIP domains among alternative names of a certificate; each name has its kind, ``DNS`` or ``URI``."""
    entries = list(names)
    uris = [_domain_in(value) for kind, value in entries if kind == "URI"]
    found = [domain for domain in uris if domain] or [value.lower() for kind, value in entries if kind == "DNS"]
    return tuple(dict.fromkeys(domain for domain in found if "*" not in domain))


def own_sip_domains(certificate: Path) -> tuple[str, ...]:
    """Return the SIP domains in the first certificate of a PEM file; :class:`ConfigurationError` if it has none."""
    from cryptography import x509  # a server loads it, an agent connects sooner without

    try:
        names = x509.load_pem_x509_certificate(certificate.read_bytes()).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return ()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{certificate} cannot be used for TLS: {error}") from None
    uris = [("URI", uri) for uri in names.value.get_values_for_type(x509.UniformResourceIdentifier)]
    return domains_among([*uris, *(("DNS", name) for name in names.value.get_values_for_type(x509.DNSName))])


def _domain_in(uri: str) -> str:
    """Return the domain of a SIP URI without a user, "" for any other URI."""
    from wanderbus.sip.message.uri import (
        SIPUri,  # imported here, so that reliable UDP alone loads nothing of SIP (SPEC F-09)
    )

    try:
        parsed = SIPUri.parse(uri)
    except SIPParseError:
        return ""
    return parsed.host if parsed.scheme == "sip" and parsed.user is None else ""


def client_tls(ca_file: Path | None = None) -> ssl.SSLContext:
    """Return the context of a client that trusts the authorities in ``ca_file``, or the system's when None.

    Raises :class:`ConfigurationError` naming the file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_authorities(context, ca_file)
    return context


def fingerprint_tls() -> ssl.SSLContext:
    """Return the context of a client that compares the certificate's fingerprint itself, right after the handshake.

    Signer and names of the certificate are not checked: the message that announced the fingerprint vouches for it (RFC
    8122 3.1).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _load_authorities(context: ssl.SSLContext, ca_file: Path | None) -> None:
    try:
        if ca_file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cafile=str(ca_file))
    except OSError as error:
        raise ConfigurationError(f"the CA file {ca_file} cannot be used: {_reason(error)}") from None


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    for file in (certificate, key or certificate):
        if not file.is_file():
            raise ConfigurationError(f"{file} cannot be used for TLS: there is no such file")
    try:
        # Without this, OpenSSL would ask for a key's password on the terminal during the start of a server.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ConfigurationError(
            f"{certificate} and {key or 'the key in it'} cannot be used for TLS: {_reason(error)}; give a PEM "
            "certificate and its key, which must not have a password"
        ) from None


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
