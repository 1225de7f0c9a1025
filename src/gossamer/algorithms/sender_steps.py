"""How many steps a sender has taken since its message, estimated from the messages themselves.

With a held message of iteration k, published at time S, and the one held before it, of iteration k' at time S':

    steps = floor((now - S) (k - k') / (S - S')),    at least 0

This counts the iterations that the sender has ended since S. It is exact while the sender's iterations take the same
time, and equals the message's age if the receiver's take that time too.
"""

from typing import NamedTuple


class Published(NamedTuple):
    """The iteration of a message, and when it ended."""

    iteration: int
    time: int  # nanoseconds


def estimate_sender_steps(now: int, held: Published, before: Published | None, age: int) -> int:
    """Return the steps of the sender of the message that is held; as many as the receiver's, `age`, if unknown.

    All times are of one clock. `before` is an earlier message of the same sender.
    """
    if before is None:
        return age
    iterations, lasted = held.iteration - before.iteration, held.time - before.time
    if iterations * lasted <= 0:
        return age
    return max(0, (now - held.time) * iterations // lasted)  # of whole numbers, so that nothing is rounded
