"""How worker processes should be started: what `dask.config` must say before a `LocalCluster` is made.

Dask's workers give freed memory back to the system at once. A pass works on the pieces of a block in arrays of some
megabytes, each of which would then be mapped, zeroed and unmapped anew: that costs as much time as the sums themselves.
"""

from __future__ import annotations

_BEFORE = "distributed.nanny.pre-spawn-environ"
#: bytes below which freed memory is kept by the process
KEPT = str(256 * 2**20)
#: for `dask.config.set`, before workers are started
WORKER_SETTINGS = {f"{_BEFORE}.MALLOC_TRIM_THRESHOLD_": KEPT, f"{_BEFORE}.MALLOC_MMAP_THRESHOLD_": KEPT}
