"""Next hop of a dialog's requests, as an address (RFC 3261 12.2.1.1)."""

from __future__ import annotations

from wanderbus.errors import SIPParseError
from wanderbus.hosts import is_ip_address, is_single_host
from wanderbus.sip.message.dialog import Dialog
from wanderbus.sip.message.targets import Target


def reachable(dialog: Dialog) -> Target:
    """Return the next hop of ``dialog``.

    Raises SIPParseError if it is not the IP address of one host. Names are not resolved: the peer could choose them,
    and a lookup would delay everybody else.
    """
    target = dialog.next_hop()
    if not is_ip_address(target.address[0]):
        raise SIPParseError(f"cannot send to {target.address[0]!r}: not an IP address")
    if not is_single_host(target.address[0]):
        raise SIPParseError(f"cannot send to {target.address[0]!r}: not the address of one host")
    return target
