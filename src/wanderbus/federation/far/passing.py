"""Messages between servers of two domains, as the gateway of the own one passes them on (decision 0165)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from wanderbus.federation.circuit_messages import FromFar, ServersTold
from wanderbus.federation.export_messages import ToServer
from wanderbus.federation.named_servers import NamedFarServers
from wanderbus.federation.wire import FarForwarded, ServersNamed, ServersWanted
from wanderbus.peers.handover.placement import server_for


class FarPassing:
    """Passes on what servers of other domains say.

    :param servers: all servers of the own domain
    :param access: those that serve devices
    :param domains: the foreign domains
    """

    def __init__(self, servers: Sequence[str], access: Iterable[str], domains: Iterable[str]) -> None:
        self._servers = tuple(servers)
        self._access = frozenset(access)
        self._named = NamedFarServers(domains)

    def outputs(
        self, domain: str, message: FarForwarded | ServersWanted | ServersNamed, reachable: Collection[str]
    ) -> Iterator[ToServer | ServersNamed]:
        """Yield a message for a server here, or the answer; it is lost if the server is not ``reachable``.

        Raises :class:`RemoteProtocolError` if it names too many servers.
        """
        match message:
            case FarForwarded(source=source, target=target, payload=payload) if target in reachable:
                self._named.check(domain, source)
                yield ToServer(target, FromFar(domain, source, payload))
            case ServersWanted(source=source, user=user):
                chosen = server_for(user, sorted(self._access.intersection(reachable))) or ""
                yield ServersNamed(source, user, self._servers, chosen)
            case ServersNamed(target=target, user=user, servers=servers, chosen=chosen) if target in reachable:
                for each in servers:
                    self._named.check(domain, each)
                yield ToServer(target, ServersTold(domain, user, servers, chosen))
