"""Files of servers and agents."""
