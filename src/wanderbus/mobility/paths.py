"""Where the next request of a dialog goes, as an address that can be sent to (RFC 3261 12.2.1.1)."""

from __future__ import annotations

import ipaddress

from wanderbus.errors import SIPParseError
from wanderbus.machine import Address
from wanderbus.sip.dialog import Dialog


def reachable(dialog: Dialog) -> Address:
    """Return the next hop of ``dialog``.

    Raises SIPParseError when it is not an IP address: names are not looked up, as the other side could choose them
    and a lookup would take its time from everybody else.
    """
    host, port = dialog.next_hop()
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise SIPParseError(f"cannot send to {host!r}: not an IP address") from None
    return host, port
