"""`Placement` -> what other runtimes read."""
