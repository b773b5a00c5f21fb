"""Registrar, location service and proxy of a domain (RFC 3261 10, 16)."""
