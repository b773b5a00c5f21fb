"""The registrar: handles REGISTER and writes the location service (RFC 3261 10.3, SPEC D-02, D-04, C-20).

Every REGISTER is authenticated, and a user may write the bindings of their own address of record only. An update is
applied as a whole or not at all. A contact with a ``+sip.instance`` replaces any other contact of the same device
(after RFC 5626 6), so that a device that moved is found at its new address at once and only there; flows, reg-id and
keep-alives of that RFC are not offered. A contact from behind NAT gets an ``alias`` with its observed source address
(:mod:`.nat_contacts`). The alias distinguishes devices with one address behind several NATs, and is never sent to a
device.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from wanderbus.errors import LimitExceeded, SIPParseError
from wanderbus.hosts import is_ip_address, is_loopback, is_single_host
from wanderbus.machine import CancelTimer, Output, RandomSource, SetTimer
from wanderbus.refusals import Limited, LoginRefused
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.authentication.verdicts import Authenticated, Challenged, Verdict
from wanderbus.sip.message.checks import registrar_refusal
from wanderbus.sip.message.headers import CONTACT_STAR, NameAddr
from wanderbus.sip.message.message import Request, Response, make_response
from wanderbus.sip.message.targets import target_of
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.message.words import NOT_SERVED
from wanderbus.sip.proxy import nat_contacts
from wanderbus.sip.proxy.bindings import Binding, BindingChanged, BindingsWritten, Domain, ExpiryPolicy
from wanderbus.sip.proxy.location import BINDINGS_PER_AOR_MAX, LocationService, same_contact

MALFORMED_EXPIRES_S: Final = 3_600
"""Value of an unreadable ``expires`` parameter (RFC 3261 20.10)."""

NOT_THE_USER: Final = "registrar"
"""Name in place of a limit's, if somebody registers for another user."""

BINDING_TEXT_CHARACTERS_MAX: Final = 512
"""Largest length of each text in a binding: contact, Call-ID, instance."""

_TAG_BYTES: Final = 4

_Q_VALUE: Final = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")
_DELTA_SECONDS: Final = re.compile(r"[0-9]{1,10}")
_INSTANCE: Final = re.compile(r"<[\x21\x23-\x3b\x3d\x3f-\x5b\x5d-\x7e]+>")


"""Beginning of the reason phrase for a domain that is not served; the served domain follows."""


class Registrar:
    """Handles the REGISTER requests of one domain.

    Its timers have the address of record as key; pass it to :meth:`expire` when due.
    """

    def __init__(
        self,
        domain: Domain,
        location: LocationService,
        authenticator: Authenticator,
        random: RandomSource,
        policy: ExpiryPolicy,
    ) -> None:
        self._domain = domain
        self._location = location
        self._authenticator = authenticator
        self._random = random
        self._policy = policy

    def register(self, request: Request, now: float, connection: int | None = None) -> tuple[Response, list[Output]]:
        """Return the response to a REGISTER and, if bindings were written, their timer and report.

        ``connection`` is its stream; a device that sent it directly is reached there (RFC 5626 6).
        """
        try:
            if refusal := self._unserved(request):
                return refusal, self._rejected(refusal, request)
            # SIPp uses our address in place of our domain in its digest URI: either is this registrar.
            verdict = self._authenticator.check(request, now, known_as=self._domain.serves, from_there=True)
            if refusal := self._unauthorised(request, verdict):
                return refusal, self._rejected(refusal, request) if isinstance(verdict, Authenticated) else []
            if not request.contacts:
                return self._listing(request, now), []
            return self._update(request, now, None if len(request.vias) > 1 else connection)
        except SIPParseError as error:
            return self._answer(request, error.status or 400), []
        except LimitExceeded as error:
            limited = Limited(f"registrar.{error.limit}", request.to.uri.address_of_record, str(error))
            return self._answer(request, 503), [limited]

    def expire(self, aor: str, now: float) -> list[Output]:
        """Remove the expired bindings of ``aor`` at ``now``; return its next timer and the report."""
        if self._location.expire(aor, now):
            return self._written(aor, now, changed=True)
        return self._timer(aor)

    def restore(self, bindings: Mapping[str, Sequence[Binding]], now: float) -> list[Output]:
        """Restore the bindings of an earlier process; return their timers.

        Invalid ones are left out: expired, of no user of the domain, or unreadable. None lasts longer than a new
        registration could, whatever the clocks did meanwhile.
        """
        outputs: list[Output] = []
        for aor, left in bindings.items():
            valid = [self._kept(binding, now) for binding in left if self._is_valid(aor, binding)]
            with contextlib.suppress(LimitExceeded):
                self._location.restore({aor: valid}, now)
                outputs += self._timer(aor)
        return outputs

    def _is_valid(self, aor: str, binding: Binding) -> bool:
        try:
            transport = target_of(SIPUri.parse(binding.contact)).transport
            user = SIPUri.parse(aor).user or ""
        except SIPParseError:
            return False
        known = aor == self._domain.address_of_record(user) and self._authenticator.knows(user)
        return known and transport in self._domain.transports

    def _kept(self, binding: Binding, now: float) -> Binding:
        return msgspec.structs.replace(binding, expires_at=min(binding.expires_at, now + self._policy.max_s))

    def _unserved(self, request: Request) -> Response | None:
        """Refuse requests that any registrar would refuse, and a foreign domain (RFC 3261 10.3 steps 1 and 2).

        Credentials of an unknown scheme count as none: the challenge follows (RFC 4475 3.3.7).
        """
        refusal = registrar_refusal(request)
        if refusal is not None and refusal.status != 401:
            return self._answer(request, refusal.status, refusal.headers)
        asked = SIPUri.parse(request.uri)
        if not self._domain.serves(asked):
            return self._answer(request, 403, reason=f"{NOT_SERVED}{self._domain.name}")
        return None

    def _unauthorised(self, request: Request, verdict: Verdict) -> Response | None:
        """Challenge, or refuse a user who is not the one in To (RFC 3261 10.3 steps 3 to 5)."""
        if isinstance(verdict, Challenged):
            return self._answer(request, 401, [("WWW-Authenticate", text) for text in verdict.challenges])
        if not isinstance(verdict, Authenticated):
            return self._answer(request, verdict.status, verdict.headers, reason=verdict.reason)
        if request.to.uri.address_of_record != self._domain.address_of_record(verdict.username):
            return self._answer(request, 403)
        return None

    def _rejected(self, refusal: Response, request: Request) -> list[Output]:
        """Report the user who was refused for another user's address; the authenticator reports wrong credentials."""
        if refusal.status != 403:
            return []
        via = request.vias[0]
        user, source = request.to.uri.address_of_record, via.received or via.host
        return [LoginRefused(user, refusal.reason, source, limit=NOT_THE_USER)]

    def _update(self, request: Request, now: float, connection: int | None) -> tuple[Response, list[Output]]:
        """Apply the Contact fields, all of them or none (RFC 3261 10.3 steps 6 to 8)."""
        aor = request.to.uri.address_of_record
        held = self._location.bindings(aor, now)
        wanted = self._wanted(request, held, now, connection)
        if wanted is None:
            return self._answer(request, 423, [("Min-Expires", str(self._policy.min_s))]), []
        updated = _merged(held, wanted)
        if updated is None:
            return self._answer(request, 500, reason="CSeq Out Of Order"), []
        before = self._location.contacts(aor, now)
        self._location.replace(aor, [binding for binding in updated if binding.expires_at > now])
        changed = self._location.contacts(aor, now) != before
        return self._listing(request, now), self._written(aor, now, changed=changed)

    def _wanted(
        self, request: Request, held: Sequence[Binding], now: float, connection: int | None
    ) -> list[Binding] | None:
        """Parse the requested bindings; ``expires_at`` is ``now`` for a removal; None if one is too brief.

        ``*`` requests the removal of every contact.
        """
        contacts = request.contacts
        if contacts == [CONTACT_STAR]:
            if request.expires != 0:
                raise SIPParseError("Contact: * needs Expires: 0")
            return [_removal(binding, request, now) for binding in held]
        if len(contacts) > BINDINGS_PER_AOR_MAX:
            raise LimitExceeded("too many contacts in one REGISTER", "BINDINGS_PER_AOR_MAX")
        wanted = []
        for contact in contacts:
            expires_s = self._requested_s(contact, request)
            if 0 < expires_s < self._policy.min_s:
                return None
            binding = _binding(contact, request, now + min(expires_s, self._policy.max_s), self._domain.transports)
            if expires_s:
                self._check_host(SIPUri.parse(binding.contact), request)
            wanted.append(msgspec.structs.replace(binding, connection=connection))
        return wanted

    def _check_host(self, contact: SIPUri, request: Request) -> None:
        """Raise :class:`SIPParseError` for a contact with no single host, or with this host as address from another
        host.
        """
        target = nat_contacts.alias_target(contact)
        host = contact.host if target is None else target.address[0]
        if not is_single_host(host):
            raise SIPParseError(f"contact: {host} is not a single host")
        source = request.via.received or request.via.host
        if is_loopback(host) and not is_loopback(source) and not is_loopback(self._domain.address[0]):
            raise SIPParseError(f"contact: {host} is this host, but the sender is another host")

    def _requested_s(self, contact: NameAddr, request: Request) -> int:
        text = contact.param("expires")
        if text is not None:
            return int(text) if _DELTA_SECONDS.fullmatch(text) else MALFORMED_EXPIRES_S
        expires_s = request.expires
        return self._policy.default_s if expires_s is None else expires_s

    def _listing(self, request: Request, now: float) -> Response:
        """Respond 200 with every live binding and its remaining seconds (RFC 3261 10.3 step 8)."""
        bindings = self._location.bindings(request.to.uri.address_of_record, now)
        return self._answer(request, 200, [("Contact", _listed(binding, now)) for binding in bindings])

    def _written(self, aor: str, now: float, *, changed: bool) -> list[Output]:
        outputs: list[Output] = [BindingsWritten(aor, self._location.held(aor))]
        if changed:
            outputs.append(BindingChanged(aor, self._location.contacts(aor, now)))
        return outputs + self._timer(aor)

    def _timer(self, aor: str) -> list[Output]:
        ends_at = self._location.next_expiry(aor)
        return [CancelTimer(aor) if ends_at is None else SetTimer(aor, ends_at)]

    def _answer(
        self, request: Request, status: int, headers: Sequence[tuple[str, str]] = (), *, reason: str | None = None
    ) -> Response:
        return make_response(request, status, reason, to_tag=self._random.token(_TAG_BYTES).hex(), headers=headers)


def _binding(contact: NameAddr, request: Request, expires_at: float, transports: frozenset[str]) -> Binding:
    """Parse one Contact value.

    Raises:
        SIPParseError: the contact cannot be reached over ``transports`` without a DNS lookup, or is too long.
    """
    uri = msgspec.structs.replace(contact.uri, headers=())
    if target_of(uri).transport not in transports:
        raise SIPParseError("contact: its transport is not served here")
    if not is_ip_address(uri.host):
        raise SIPParseError("contact: the host is not an IP address")
    instance = contact.param("+sip.instance")
    q_text = contact.param("q") or "1"
    binding = Binding(
        contact=str(uri),
        expires_at=expires_at,
        call_id=request.call_id,
        cseq=request.cseq.number,
        instance=instance if instance and _INSTANCE.fullmatch(instance) else None,
        q=float(q_text) if _Q_VALUE.fullmatch(q_text) else 1.0,
    )
    if max(map(len, (binding.contact, binding.call_id, binding.instance or ""))) > BINDING_TEXT_CHARACTERS_MAX:
        raise SIPParseError(f"contact: longer than {BINDING_TEXT_CHARACTERS_MAX} characters")
    return binding


def _removal(binding: Binding, request: Request, now: float) -> Binding:
    return msgspec.structs.replace(binding, expires_at=now, call_id=request.call_id, cseq=request.cseq.number)


def _merged(held: Sequence[Binding], wanted: Sequence[Binding]) -> list[Binding] | None:
    """Return ``held`` with ``wanted`` applied, newest contact first; None if a binding was written by a later request.

    A refreshed contact keeps its place: only a new contact is placed first. A removal is a binding that ends now; the
    caller removes it with the expired ones.
    """
    merged = list(held)
    for new in wanted:
        rivals = [old for old in merged if _same_binding(old, new)]
        if any(old in held and old.call_id == new.call_id and old.cseq >= new.cseq for old in rivals):
            return None
        refreshed = [merged.index(old) for old in rivals if old.contact == new.contact]
        merged = [old for old in merged if old not in rivals]
        merged.insert(refreshed[0] if refreshed else 0, new)
    return merged


def _same_binding(old: Binding, new: Binding) -> bool:
    if new.instance is not None and old.instance == new.instance:
        return True
    if same_contact(SIPUri.parse(old.contact), SIPUri.parse(new.contact)):
        return True
    # A NAT gave the same device another address: its CSeq numbers continue (RFC 3261 10.2).
    return old.call_id == new.call_id and nat_contacts.is_same_device(SIPUri.parse(old.contact), new.contact)


def _listed(binding: Binding, now: float) -> str:
    instance = f';+sip.instance="{binding.instance}"' if binding.instance else ""
    contact = nat_contacts.without_alias(SIPUri.parse(binding.contact))
    return f"<{contact}>;expires={max(1, round(binding.expires_at - now))};q={binding.q:g}{instance}"
