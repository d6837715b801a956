"""Which GPU it is that CUDA numbers so in this process, told to other processes that may number it otherwise."""

import os

import torch


def gpu_identity(number: int) -> str:
    """`GPU-` and the UUID, whatever `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` are here.

    Where torch cannot tell it (a build without CUDA beside a framework that has it, a GPU that does not start), what `CUDA_VISIBLE_DEVICES` names at that place, else the number:
    processes of which only some know the UUID may then call one GPU by two names.
    """
    if number < torch.cuda.device_count():
        try:
            return f"GPU-{torch.cuda.get_device_properties(number).uuid}"
        except (AttributeError, RuntimeError):  # an older torch has no UUIDs; CUDA may fail to start
            pass
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return visible[number] if number < len(visible) and visible[number] else str(number)
