"""Commands of an event domain."""
