"""Links between the servers of an event domain (SPEC J-12)."""
