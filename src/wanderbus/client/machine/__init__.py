"""State machine of the agent: registration, session with the broker, its protocol, healing (SPEC A-11, G, D)."""
