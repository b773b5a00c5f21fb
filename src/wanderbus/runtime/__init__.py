"""The only I/O: sockets, timers, clocks, disks and randomness around the pure machines (DESIGN rule 2)."""
