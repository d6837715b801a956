"""A worker for `Pool`, `python -m seat_worker FOLDER FD`, whose times can be told exactly: on devices that begin with core c, a step takes c + 1 times 1 + the placement's sum.

A placement whose last op is on device 1 is not answered before one whose first op is there has been, by another worker, which the file `BESIDE` tells. A placement all on
device 1 ends the worker.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from gdp.runtime.serving import answer, serve, step_times
from gdp.runtime.timing import Protocol

BESIDE = "measured-beside"
PATIENCE_S = 60.0


def main() -> None:
    """Serves."""
    beside = Path(sys.argv[1]).parent / BESIDE

    def measure(*, devices: list[str], candidate: list[int], incumbent: list[int] | None, protocol: dict[str, Any]) -> dict[str, Any]:
        if all(candidate):
            os.kill(os.getpid(), signal.SIGSEGV)
        slowness = 1 + int(devices[0].removeprefix("cpu:"))
        deadline = time.monotonic() + PATIENCE_S
        while candidate[-1] and not beside.exists():
            if time.monotonic() > deadline:
                return {"failed": "nothing was measured beside this placement"}
            time.sleep(0.01)
        if candidate[0]:
            beside.touch()

        def step_of(placement: list[int]) -> float:
            return float(slowness * (1 + sum(placement)))

        other = None if incumbent is None else lambda: step_of(incumbent)
        candidate_s, incumbent_s = step_times(lambda: step_of(candidate), other, Protocol(**protocol))
        return {
            "candidate_s": candidate_s,
            "incumbent_s": incumbent_s,
            "busy_s": [1.0] * len(devices),
            "peak_memory_bytes": [0] * len(devices),
        }

    def load(*, ops: list[str]) -> dict[str, Any]:
        return {"ok": True}

    commands = {"load": load, "measure": measure}
    serve(sys.argv[1:], lambda request: answer(commands, request, lacks_memory=lambda error: isinstance(error, MemoryError))[0])


if __name__ == "__main__":
    main()
