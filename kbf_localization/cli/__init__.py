"""The command kbf."""
