"""Runtime of the pure machines, and the only I/O: sockets, timers, clocks, disks and randomness (DESIGN rule 2)."""
