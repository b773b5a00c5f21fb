"""What a server has to survive, done to it on purpose: ``kill -9`` under load, and power cuts of a recorded disk."""
