"""``python -m wanderbus.lightweight``: prints the lightweight client as one file."""

import sys

from wanderbus.lightweight.one_file import one_file

if __name__ == "__main__":
    sys.stdout.write(one_file(with_socket="--core" not in sys.argv[1:]))
