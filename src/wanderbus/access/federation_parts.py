"""Parts of a server for the federation of its domain; the names of parts are the scopes of their timers."""

from __future__ import annotations

from typing import Final, NamedTuple

from wanderbus.composition import Part
from wanderbus.federation.member import FederationMember
from wanderbus.federation.messages import FederationInput, FederationOutput
from wanderbus.peers.far_servers import FarDomains
from wanderbus.peers.links import ServerLinks
from wanderbus.peers.messages import ServerLinksInput, ServerLinksOutput

FIRST_CIRCUIT: Final = 2**49
"""Number of the first link of the broker that the federation opens: no link between servers has so high a number."""

FEDERATION: Final = Part[FederationInput, FederationOutput]("federation")
FOREIGN_LINKS: Final = Part[ServerLinksInput, ServerLinksOutput]("gateways")

FOREIGN_SOCKET: Final = FOREIGN_LINKS.name
"""Socket of the links to gateways of other domains."""


class FederationParts(NamedTuple):
    """Parts for the federation of the domain; ``links`` to other domains only if it is a gateway.

    ``domains`` are those between which sessions may move, and ``visit_key`` is that by which the proxies of the own
    domain prove calls of its users to others.
    """

    member: FederationMember
    links: ServerLinks | None = None
    domains: FarDomains = FarDomains()
    visit_key: bytes = b""
