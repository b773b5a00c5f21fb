"""Identity of an agent for its SIP user agent and its data channel."""

from __future__ import annotations

from wanderbus.client.machine.messages import AgentProperties
from wanderbus.datachannel import Parties, channel_secret
from wanderbus.hosts import domain_of
from wanderbus.mobility.flow import KEEP_ALIVE_S
from wanderbus.mobility.properties import Properties
from wanderbus.sip.authentication.digest_values import secret_ha1
from wanderbus.sip.message.uri import canonical_uri


def sip_properties_of(properties: AgentProperties) -> Properties:
    """Return the settings of the agent's SIP user agent."""
    return Properties(
        uri=properties.uri,
        server=properties.server,
        password=properties.password,
        instance=f"<urn:uuid:{properties.device}>",
        digest_algorithms=properties.digest_algorithms,
        register_expires_s=properties.register_expires_s,
        transport=properties.transport,
        server_name=properties.server_name,
        keep_alive_s=KEEP_ALIVE_S[properties.transport],
    )


def parties_of(properties: AgentProperties, session: str) -> Parties:
    """Return both parties of the SIP ``session``, with the secret derived from the password (DESIGN 6.5).

    A broker of another domain does not know the password, so there is no shared secret.
    """
    ours, password = sip_properties_of(properties), properties.password
    domain, broker = domain_of(ours.uri), canonical_uri(properties.broker)
    known = None
    if password is not None and domain_of(broker) == domain:
        known = secret_ha1(password, ours.username, domain, "SHA-256")
    return Parties(
        role="agent",
        agent=ours.uri,
        broker=broker,
        dialog=session,
        secret=None if known is None else channel_secret(known),
        over_tls=ours.transport == "TLS",
    )
