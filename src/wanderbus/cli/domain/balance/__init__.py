"""Commands that share the load of a domain among its servers, by moves of channel groups and sessions."""
