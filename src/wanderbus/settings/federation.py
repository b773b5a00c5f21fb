"""File of a federation: the domains of other operators, and the types of events shared with them (SPEC M-01, S-01)."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal

import msgspec

from wanderbus import limits
from wanderbus.channels.causal.domain_past import PAST_DOMAINS_MAX
from wanderbus.errors import ConfigurationError, RemoteProtocolError
from wanderbus.federation.methods.filter_bounds import DOMAINS_MAX, TYPES_MAX
from wanderbus.federation.routing_messages import Method
from wanderbus.hosts import canonical, is_ip_address, is_single_host
from wanderbus.machine import Address
from wanderbus.peers.far_servers import VisitorsChoice
from wanderbus.rudp.keys import KEY_BYTES, KeyPair
from wanderbus.settings.event_domain import address_in
from wanderbus.subscription import has_wildcard

GATEWAYS_MAX: Final = 32
GATEWAY_SERVICE: Final = "_wanderbus._udp"
"""First labels of the SRV records of gateways."""
NAME_CHARACTERS_MAX: Final = 200

_LABEL: Final = "[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_DOMAIN_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_GATEWAY_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY_TO_TRY: Final = KeyPair(bytes(KEY_BYTES))


GatewaysSetting = Mapping[str, str] | Literal["dns"]
"""Gateways of a foreign domain by their names, each with its address; or their place."""


class DomainCard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data of a domain that its operator gives to the operators of others."""

    name: str
    """SIP domain name of its servers."""

    public_key: str
    """X25519 public key in hexadecimal, one for all gateways of the domain."""

    gateways: Mapping[str, str]
    """Gateways by their names, each with its address for other domains, ``host:port``."""


class ForeignDomainSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A foreign domain, and the types of events that are shared with it."""

    public_key: str
    """X25519 public key of the domain in hexadecimal, by which its gateways are authenticated."""

    gateways: GatewaysSetting = {}
    """Its gateways by their names, each ``host:port`` with an IP address. With none there is no link to it: other
    domains pass on what goes there, along the tree of a type whose method is ``tree`` (SPEC M-04). With ``"dns"``, they
    are found by the SRV records of ``_wanderbus._udp.DOMAIN``, whose hosts begin with the names of the gateways."""

    receive: tuple[str, ...] = ()
    """Types that are received from it: exact subjects."""

    send: tuple[str, ...] = ()
    """Types that are sent to it: exact subjects."""

    events_per_s_max: float | None = None
    """Most events a second that are accepted from it; no bound unless given."""

    distance_ms: float | None = None
    """Length of the link to it, for the method ``tree``: the tree has the links of least length in all. 1 unless
    given; if the two domains give several, the greatest one counts."""

    gives_sessions: bool = False
    """True if sessions of users here may move to it (SPEC L-01)."""

    takes_sessions: bool = False
    """True if sessions from it may move here (SPEC L-01)."""

    visitors: VisitorsChoice = "own"
    """Service for users of the domain who call here, as far as ``user_domains`` admits them (SPEC D-13). With ``own``
    they get a session of their own here. With ``home`` they are sent to their own domain. With ``move`` their session
    in their own domain moves here before they are served; that needs ``takes_sessions``, and ``gives_sessions``
    there."""

    backbone: bool = True
    """True for one of the rendezvous domains of the method ``rendezvous``."""

    causal: bool = False
    """True to have causal order with it, if it asks for that, too: no answer is read before the event that it answers,
    whatever domains they are from. All types that cross need decentralised channels here (SPEC K-06)."""


class FederationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a domain among others; the file is the same for all its servers."""

    name: str
    """SIP name of the own domain, in lower case."""

    public_key: str
    """X25519 public key of the own domain in hexadecimal. The private key is a file of its own, the same for all
    gateways of the domain."""

    gateways: Mapping[str, str]
    """Gateways of the own domain, the servers that have links to other domains (SPEC S-01): each with its address for
    them, ``host:port`` with an IP address. A domain of one server has one gateway, with any name."""

    backbone: bool = True
    """True if the own domain is one of the rendezvous domains of the method ``rendezvous``."""

    method: Method = "multicast"
    """Way of filters between domains, for types that ``methods`` does not name (SPEC M-05); all domains of a type need
    the same. With ``multicast``, each domain tells the others what it wants (SPEC M-02). With ``rendezvous``, a domain
    of the backbone collects and spreads that (SPEC M-03). With ``tree``, domains without a link of their own reach each
    other along the tree of shortest distances (SPEC M-04)."""

    methods: Mapping[str, Method] = {}
    """Methods of some types, instead of ``method``."""

    domains: Mapping[str, ForeignDomainSettings] = {}
    """Foreign domains by their names. A type crosses only if the one domain has it in ``send`` for the other, and the
    other has it in ``receive`` (SPEC M-01)."""


class Federation:
    """A domain and the foreign domains, as the file describes them."""

    def __init__(self, settings: FederationSettings) -> None:
        """Check the settings.

        :raises ConfigurationError: the settings contradict themselves, or exceed a bound; the message begins with the
            key
        """
        self.settings = settings
        self.name = _domain_name("name", settings.name)
        self.public_key = _public_key("public_key", settings.public_key)
        self.gateways: Final = _addresses("gateways", settings.gateways)
        """Addresses of the own gateways."""
        _check_count("domains", settings.domains, DOMAINS_MAX)
        self._keys = {
            _domain_name(f"domains.{name}", name): _public_key(f"domains.{name}.public_key", domain.public_key)
            for name, domain in settings.domains.items()
        }
        self._foreign_gateways = {
            name: _addresses(f"domains.{name}.gateways", domain.gateways)
            if domain.gateways and domain.gateways != "dns"
            else {}
            for name, domain in settings.domains.items()
        }
        self._received = {name: frozenset(domain.receive) for name, domain in settings.domains.items()}
        self._sent = {name: frozenset(domain.send) for name, domain in settings.domains.items()}
        self._check_names_and_keys()
        self._check_places()
        self._check_types()
        self._check_reached()
        self._check_values()
        self._check_causal()

    @property
    def domains(self) -> tuple[str, ...]:
        """Return the names of the foreign domains, sorted."""
        return tuple(sorted(self.settings.domains))

    @property
    def looked_up(self) -> Mapping[str, bytes]:
        """Return the public keys of the domains whose gateways are looked up in the DNS."""
        return {name: self._keys[name] for name in self.domains if self.settings.domains[name].gateways == "dns"}

    @property
    def backbone(self) -> tuple[str, ...]:
        """Return the rendezvous domains, sorted; the own one is among them unless the file excludes it."""
        foreign = {name for name, domain in self.settings.domains.items() if domain.backbone}
        return tuple(sorted(foreign | ({self.name} if self.settings.backbone else set())))

    @property
    def causal(self) -> tuple[str, ...]:
        """Return the domains that causal order is asked for with, sorted."""
        return tuple([name for name in self.domains if self.settings.domains[name].causal])

    @property
    def distances_ms(self) -> Mapping[str, float]:
        """Return the distances of those foreign domains for which the file has one."""
        found = ((name, domain.distance_ms) for name, domain in self.settings.domains.items())
        return {name: distance for name, distance in found if distance is not None}

    def key_of(self, domain: str) -> bytes:
        """Return the public key of a foreign domain; KeyError if the file does not name the domain."""
        return self._keys[domain]

    def links_of(self, gateway: str) -> Mapping[str, tuple[Address, bytes]]:
        """Return the foreign gateways that the own ``gateway`` can have links with: addresses and public keys.

        Their names are ``DOMAIN/GATEWAY``. Gateways of the other IP version cannot be reached. KeyError if the file has
        no own gateway of this name.
        """
        own = self.gateways[gateway]
        return {
            f"{domain}/{name}": (address, self._keys[domain])
            for domain in self.domains
            for name, address in self._foreign_gateways[domain].items()
            if _is_ipv6(address) is _is_ipv6(own)
        }

    def receives(self, domain: str) -> frozenset[str]:
        """Return the types that are received from a foreign domain: none if the file does not name it."""
        return self._received.get(domain, frozenset())

    def sends(self, domain: str) -> frozenset[str]:
        """Return the types that are sent to a foreign domain: none if the file does not name it."""
        return self._sent.get(domain, frozenset())

    def method_of(self, subject: str) -> Method:
        """Return the method of a type."""
        return self.settings.methods.get(subject, self.settings.method)

    @property
    def types(self) -> tuple[str, ...]:
        """Return the types that cross the border of the own domain by its file, sorted."""
        return tuple(sorted({each for _, each in self._listed()}))

    def _listed(self) -> Iterator[tuple[str, str]]:
        """Yield each type that the file shares with a domain, with its key."""
        for name, domain in self.settings.domains.items():
            for key, types in (("receive", domain.receive), ("send", domain.send)):
                yield from ((f"domains.{name}.{key}", each) for each in types)

    def _check_names_and_keys(self) -> None:
        if self.name in self.settings.domains:
            raise ConfigurationError(f"domains.{self.name}: it is the own domain; name other domains")
        owners = {self.public_key: "the own domain"}
        for name, key in self._keys.items():
            if (other := owners.setdefault(key, name)) != name:
                raise ConfigurationError(f"domains.{name}.public_key: it is also the key of {other}; each has its own")

    def _check_places(self) -> None:
        owners: dict[Address, str] = {}
        own = [("gateways", self.gateways)]
        foreign = [(f"domains.{name}.gateways", found) for name, found in self._foreign_gateways.items()]
        for key, addresses in own + foreign:
            for gateway, (host, port) in addresses.items():
                this = f"{key}.{gateway}"
                if (other := owners.setdefault((canonical(host), port), this)) != this:
                    raise ConfigurationError(f"{this}: {other} has the same address; each gateway has its own")
        versions = {_is_ipv6(address) for address in self.gateways.values()}
        for key, addresses in foreign:
            if addresses and versions.isdisjoint(map(_is_ipv6, addresses.values())):
                raise ConfigurationError(f"{key}: none has the IP version of an own gateway; add one that has")

    def _check_types(self) -> None:
        seen: set[tuple[str, str]] = set()
        for each in self._listed():
            _check_type(*each)
            if each in seen:
                raise ConfigurationError(f"{each[0]}: {each[1]!r} is there twice; leave it once")
            seen.add(each)
        for subject in self.settings.methods:
            _check_type("methods", subject)
        _check_count("domains", self.types, TYPES_MAX, "types in all")
        _check_count("methods", {*self.settings.methods, *self.types}, TYPES_MAX, "types in all")

    def _check_reached(self) -> None:
        """Check that other domains can pass on what goes to a domain without gateways."""
        for name, domain in self.settings.domains.items():
            if not domain.gateways and all(self.method_of(each) != "tree" for each in (*domain.receive, *domain.send)):
                raise ConfigurationError(
                    f"domains.{name}.gateways: there is none; name one with its address, or share a type whose method "
                    "is tree"
                )

    def _check_causal(self) -> None:
        """Refuse causal order where it would be lost without a word."""
        _check_count("domains", self.causal, PAST_DOMAINS_MAX - 1, "with causal = true")
        for name in self.causal:
            domain = self.settings.domains[name]
            if domain.gives_sessions or domain.takes_sessions:
                raise ConfigurationError(
                    f"domains.{name}.causal: sessions that move to another domain do not take their past along; leave "
                    "out causal, or gives_sessions and takes_sessions"
                )
        if self.causal and len(self.gateways) > 1:
            raise ConfigurationError(
                f"domains.{self.causal[0]}.causal: {self.name} has several gateways; leave one, or leave out causal"
            )

    def _check_values(self) -> None:
        for name, domain in self.settings.domains.items():
            rate, distance = domain.events_per_s_max, domain.distance_ms
            if rate is not None and not 0 < rate < math.inf:
                raise ConfigurationError(
                    f"domains.{name}.events_per_s_max: {rate} is out of range (expected above 0); to accept no event, "
                    "receive no type"
                )
            if domain.visitors == "move" and not domain.takes_sessions:
                raise ConfigurationError(
                    f"domains.{name}.visitors: move needs takes_sessions, which is false; use 'wanderbus federation "
                    f"trust FILE {name} --takes-sessions --visitors move', or choose own or home"
                )
            if distance is not None and not 0 <= distance < math.inf:
                raise ConfigurationError(f"domains.{name}.distance_ms: {distance} is out of range (expected 0 or more)")


def check_gateway(key: str, name: str, address: str) -> Address:
    """Return the address of a gateway; :class:`ConfigurationError` if its name or address cannot be used."""
    if not _GATEWAY_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{key}: {name!r} is not a name of a gateway (expected letters, digits, - and _, at most 64)"
        )
    found = address_in(address)
    if found is None or not is_ip_address(found[0]) or not is_single_host(found[0]):
        raise ConfigurationError(
            f"{key}.{name}: {address!r} cannot be used (expected host:port with the IP address of one host)"
        )
    return found


def _addresses(key: str, gateways: Mapping[str, str]) -> Mapping[str, Address]:
    if not gateways:
        raise ConfigurationError(f"{key}: there is none; name one with its address")
    _check_count(key, gateways, GATEWAYS_MAX)
    return {name: check_gateway(key, name, address) for name, address in gateways.items()}


def _check_count(key: str, found: Collection[str], most: int, noun: str = "in all") -> None:
    if len(found) > most:
        raise ConfigurationError(f"{key}: {len(found)} {noun} are too many (expected at most {most})")


def _check_type(key: str, subject: str) -> None:
    if not 0 < len(subject) <= limits.EVENT_NAME_CHARACTERS_MAX:
        raise ConfigurationError(
            f"{key}: a type has {len(subject)} characters (expected 1 to {limits.EVENT_NAME_CHARACTERS_MAX})"
        )
    if has_wildcard(subject):
        raise ConfigurationError(f"{key}: {subject!r} has a wildcard; a type is the exact subject of its events")


def _domain_name(key: str, name: str) -> str:
    if len(name) > NAME_CHARACTERS_MAX or not _DOMAIN_NAME.fullmatch(name) or is_ip_address(name):
        raise ConfigurationError(
            f"{key}: {name[:80]!r} is not a domain (expected a name such as example.org, in lower case, of at most "
            f"{NAME_CHARACTERS_MAX} characters)"
        )
    return name


def _public_key(key: str, text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
        _KEY_TO_TRY.secrets(found, salt=b"", context=b"", first=True)
    except (ValueError, RemoteProtocolError):
        raise ConfigurationError(
            f"{key}: it is not a public key of {2 * KEY_BYTES} hexadecimal digits; 'wanderbus federation card' prints "
            "that of a domain"
        ) from None
    return found


def _is_ipv6(address: Address) -> bool:
    return ":" in address[0]
