"""Loading of a matching kernel, which may take seconds, while the server goes on."""

from __future__ import annotations

import asyncio
import gc
import logging

from wanderbus.matching import Kernel, load_kernel

_log = logging.getLogger("wanderbus.server")


async def loaded_kernel(wanted: Kernel) -> Kernel:
    """Load a kernel in a thread, so that the event loop is not blocked; return the one that could be loaded.

    What has been loaded by then is kept out of the collection of garbage.
    """
    kernel = await asyncio.to_thread(load_kernel, wanted)
    gc.freeze()  # a compiled kernel has a million objects, which no collection has to look at again
    if kernel != wanted:
        _log.warning("cannot load the matching kernel %s; using %s, which is slower", wanted, kernel)
    return kernel
