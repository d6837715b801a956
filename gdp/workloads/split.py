"""What a workload is for."""

from typing import Literal

Split = Literal["pretraining", "validation", "hold-out"]
"""A family of workloads is in one split, so that nothing like a hold-out graph is ever trained on."""
