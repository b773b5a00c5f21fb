"""Digest authentication and its limits (RFC 3261 22, RFC 7616)."""
