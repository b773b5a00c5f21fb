"""Terminal mobility over SIP as pure machines: registration, sessions that survive address changes (SPEC C, D)."""
