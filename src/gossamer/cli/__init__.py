"""The command line: one file per command, and what commands share in main, flags, display and interrupt."""
