"""Placers x workloads x clusters x seeds -> tables."""
