"""Fuzzing: hundreds of thousands of hostile inputs, made from seeds, so that each can be reproduced."""
