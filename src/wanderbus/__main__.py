"""``python -m wanderbus`` is the ``wanderbus`` command."""

from wanderbus.cli import main

main()
