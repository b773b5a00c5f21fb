"""The transaction layer (RFC 3261 17, 18)."""
