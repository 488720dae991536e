"""The source behind the relay: answers each connection with the bytes of one file, then closes it.

    python source.py FILE

Prints its port. The kernel copies (sendfile), so that what is measured is the relay in front.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path


def serve(connection: socket.socket, path: Path) -> None:
    """One connection."""
    with connection, path.open("rb") as file:
        connection.recv(65536)  # the request; what it asks for is known
        left, at = os.fstat(file.fileno()).st_size, 0
        try:
            while at < left:
                at += os.sendfile(connection.fileno(), file.fileno(), at, left - at)
        except (BrokenPipeError, ConnectionResetError):
            pass


def main() -> None:
    path = Path(sys.argv[1])
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, path), daemon=True).start()


if __name__ == "__main__":
    main()
