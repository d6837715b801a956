"""How a worker process begins: it leaves Ctrl-C to its parent, takes its share of the cores, and ends when its parent has gone, be it by a kill."""

import os
import signal
import threading
import time


def begin_worker(parent: int, *, num_threads: int) -> None:
    """To be called first in a worker of the process `parent`. Torch gets `num_threads`."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(num_threads)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
