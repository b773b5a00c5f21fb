"""The event log on disk (SPEC T-01; DESIGN 5.1)."""
