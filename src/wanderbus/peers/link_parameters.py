"""Parameters of links between servers, each with its unit and the origin of its value (SPEC F-10)."""

from __future__ import annotations

from typing import Final

from wanderbus.limits import EVENT_BYTES_MOST
from wanderbus.parameters.transports import RudpConfig, carrying

SERVER_LINK_CONFIG: Final = carrying(RudpConfig(timeout_min_s=0.1, timeout_max_s=0.75, retries_max=5), EVENT_BYTES_MOST)
"""Reliable UDP between servers. A silent server fails a link 3 to 4.5 s after the first packet without an answer."""

KEEPALIVE_S: Final = 1.0
"""Time without own packets after which a link carries a PING, seconds. A link without traffic thus fails within 5.5 s
after the other server is gone, and within a second after its restart."""

RETRY_S_MIN: Final = 0.25
"""First wait for an answer, and first pause after a link has closed, seconds (as the initial timeout of RUDP)."""

RETRY_S_MAX: Final = 5.0
"""Largest of these, seconds: they double. A link that was open for so long makes the next pause the first again."""

RETRY_JITTER: Final = 0.25
"""Largest share by which a wait or a pause is longer or shorter, so that servers do not retry in step."""

CONFIRM_S: Final = 1.0
"""Least time from an answer to the first packet of the acceptor, seconds: the PING is sent three times in it."""

PENDING_S: Final = 10.0
"""Time that a pending link is kept, seconds; more than the opener waits with ``RETRY_S_MAX``."""

LOOK_S: Final = 0.25
"""Time between two looks at the state of the links, seconds."""

SUSPECT_S: Final = 0.75
"""Time without an acknowledgement after which a link with unacknowledged packets is suspect, seconds: it is reported
within :data:`LOOK_S` more. A repeated packet is sent three times in it."""

SUSPECT_ROUND_TRIPS: Final = 3
"""The same as a number of round trips, on longer paths."""

FIRST_LINK_S: Final = 3.0
"""Time until the first link to a server must be open, seconds: all servers of a domain may be starting."""

REPORT_S: Final = 10.0
"""Shortest time between two reports that the same server cannot be reached, seconds."""
