"""The user and the device of an agent, as its SIP user agent and its data channel name them."""

from __future__ import annotations

from wanderbus.agent.messages import AgentProperties
from wanderbus.datachannel import Parties, channel_secret
from wanderbus.mobility.flow import KEEP_ALIVE_S
from wanderbus.mobility.properties import Properties
from wanderbus.sip.digest import ha1
from wanderbus.sip.uri import canonical_uri


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
    """Return both parties of the SIP ``session``, with the secret derived from the password (DESIGN 6.5)."""
    ours, password = sip_properties_of(properties), properties.password
    domain = ours.uri.partition("@")[2]
    return Parties(
        role="agent",
        agent=ours.uri,
        broker=canonical_uri(properties.broker),
        dialog=session,
        secret=None if password is None else channel_secret(ha1(ours.username, domain, password)),
        over_tls=ours.transport == "TLS",
    )
