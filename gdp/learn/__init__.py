"""Rollouts, advantages, PPO, the loop, and snapshots for resuming."""
