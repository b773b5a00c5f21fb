"""Fuzzing: hostile inputs by the hundred thousand, made from seeds, so that each can be made again."""
