"""Servers and the roles that they host: SIP, broker."""
