"""Placers that learn nothing."""
