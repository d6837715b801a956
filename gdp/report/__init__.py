"""Pictures of a run, on one self-contained page."""
