"""How the simulator's kernels are compiled: without the GIL, kept on disk, and without numba's reference counts, which cost them half their speed.

A kernel may therefore allocate nothing: its arrays are handed to it (`scratch.py`).
"""

import numba

compile_kernel = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)  # type: ignore[call-overload]
compile_inline = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False, inline="always")  # type: ignore[call-overload]
