"""Sessions and their devices: presence, limits, ends, and the handover of a session to another server."""
