"""Channel groups that move between the leaders of a domain: rows, the next leader, the part of the present one."""
