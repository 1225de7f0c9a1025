"""`python -m gossamer.runtime.book ADDRESS PORT` serves a book until SIGTERM, and prints its endpoint."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import UserError, read_whole
from gossamer.runtime.book.address_book import serve_book
from gossamer.runtime.book.keys import read_key


def main(arguments: Sequence[str]) -> int:
    """Serve a book until SIGTERM or SIGINT, and print where."""
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before the server's thread exists, which inherits it
    try:
        if len(arguments) != 2:
            raise UserError(f"got {len(arguments)} arguments, two are needed; give ADDRESS PORT, such as 127.0.0.1 0")
        file = os.environ.get("GOSSAMER_KEY_FILE")
        port = read_whole("the port", arguments[1])
        server = serve_book(arguments[0], port, read_key(Path(file)) if file else None)
    except UserError as error:
        print(f"gossamer: {error}", file=sys.stderr)
        return 2
    print(server.endpoint, flush=True)
    signal.sigwait(signals)
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
