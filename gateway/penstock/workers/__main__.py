"""`python -m penstock.workers DESCRIPTOR`: a worker. Only a gateway that is its parent starts it."""

import sys

from penstock.workers.process import main

if __name__ == "__main__":
    main(int(sys.argv[1]))
