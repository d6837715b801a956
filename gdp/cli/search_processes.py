"""Searches in processes of their own: every core searches, and what was found stays when the run is killed."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from gdp.cli.worker_process import begin_worker
from gdp.errors import InputError


def search_in_processes(
    search: Callable[[int], None],
    numbers: Sequence[int],
    *,
    num_processes: int,
    prepare: Callable[..., None],
    prepared_with: tuple[Any, ...],
    stopped: Callable[[], int],
    advance: Callable[[int], None],
) -> bool:
    """Calls `search` with each of the numbers, in processes that have called `prepare` with `prepared_with`; `advance` hears how many are done.

    Ends early, with what is in hand finished, when `stopped`, or when a search fails, whose error it raises; tells whether all were searched. Where this process
    is killed the others end, too.
    """
    with ProcessPoolExecutor(
        max_workers=min(num_processes, len(numbers)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(os.getpid(), prepare, prepared_with),
    ) as pool:
        futures = [pool.submit(search, number) for number in numbers]
        for done, future in enumerate(as_completed(futures), start=1):
            try:
                future.result()
            except BrokenProcessPool as error:
                raise InputError(
                    "a process that searched was ended from outside, for want of memory perhaps; "
                    f"start again with num_threads below {num_processes}: what was found stays"
                ) from error
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            advance(done)
            if stopped() and done < len(numbers):
                pool.shutdown(wait=True, cancel_futures=True)
                return False
    return True


def _begin(parent: int, prepare: Callable[..., None], prepared_with: tuple[Any, ...]) -> None:
    begin_worker(parent, num_threads=1)
    prepare(*prepared_with)
