"""Sessions that survive changes of address (SPEC C, D; RFC 3261 12 to 15)."""
