"""Parameters of links between servers, each with its unit and the origin of its value (SPEC F-10)."""

from __future__ import annotations

from typing import Final

from wanderbus.parameters.transports import RudpConfig

SERVER_LINK_CONFIG: Final = RudpConfig(timeout_min_s=0.1, timeout_max_s=0.75, retries_max=5)
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
