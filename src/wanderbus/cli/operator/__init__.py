"""Commands of operators: listings of the broker, and changes of its queues and connections."""
