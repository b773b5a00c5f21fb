"""Other servers of the event domain: links to them, sessions at leaders, interest, owners of sessions (SPEC J-12)."""
