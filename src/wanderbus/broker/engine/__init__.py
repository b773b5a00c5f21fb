"""The matching engine beside the broker: requests for its matches, and their delivery (SPEC T-06; DESIGN 7.5)."""
