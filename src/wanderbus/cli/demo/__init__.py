"""``wanderbus demo``: a minute with a server and users who move, on loopback."""
