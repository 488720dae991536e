"""`python -m penstock.app.workers DESCRIPTOR`: a worker process. Only its parent, a gateway, starts it."""

import sys

from penstock.app.workers.process import main

if __name__ == "__main__":
    main(int(sys.argv[1]))
