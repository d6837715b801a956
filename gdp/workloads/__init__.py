"""Named programs, one family a file, and the synthetic families."""
