"""TensorFlow, imported without its start-up chatter."""

import os
import sys
import tempfile
from types import ModuleType

from gdp.errors import InputError


def import_tensorflow() -> ModuleType:
    """The `tensorflow` module, imported on the first call.

    Native code reports oneDNN and missing CUDA drivers on the standard error stream while TensorFlow loads, whatever `TF_CPP_MIN_LOG_LEVEL` says. Those lines are
    held back, and shown only where the import fails. Afterwards the log level is that of the environment, or fatal errors alone where it says nothing (Python still raises).

    Raises:
        InputError: when TensorFlow is not installed.
    """
    leave_gpu_memory_to_others()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" not in sys.modules:
        _import_holding_back_stderr()
    import tensorflow

    module: ModuleType = tensorflow
    return module


def leave_gpu_memory_to_others() -> None:
    """TensorFlow, imported by whomever, takes a GPU's memory as it needs it, unless the environment says otherwise. It would reserve all of it at its first op, and leave
    none to the process that measures."""
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def _import_holding_back_stderr() -> None:
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            import tensorflow  # noqa: F401
        except BaseException as error:
            held_back.seek(0)
            os.write(kept, held_back.read())
            if isinstance(error, ModuleNotFoundError) and error.name == "tensorflow":
                raise InputError("TensorFlow is not installed; install it with `pip install 'gdp[tensorflow]'`") from error
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
