"""Checkpoint files, their cards, and the Hugging Face Hub."""
