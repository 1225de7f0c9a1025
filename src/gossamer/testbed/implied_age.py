"""How old messages are, in steps of their receiver, on a testbed whose speeds and links do not change."""

import numpy as np
import numpy.typing as npt

from gossamer.network import Links
from gossamer.testbed.testbed import Testbed


def implied_ages(bed: Testbed, links: Links, sizes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the usual age of the messages on each link, for messages of so many bytes."""
    times = bed.links(links, 0)
    busy = np.broadcast_to(np.asarray(sizes, dtype=float), (len(links),)) / times.bandwidth
    step = bed.compute.mean(bed.agents)[links.receivers.numpy()] * bed.step_seconds
    ages: npt.NDArray[np.int64] = np.ceil((times.base_latency / 1e9 + busy) / step - 1e-9).astype(np.int64)
    return ages
