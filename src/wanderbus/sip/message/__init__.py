"""SIP messages, their header fields, URIs and session descriptions (RFC 3261 7, RFC 4566)."""
