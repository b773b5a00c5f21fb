"""``python -m faults.patient_server [--short-log] up ...``: wanderbus that serves no subscriber of another server.

While that server is down, the device calls again, however long that takes. Otherwise it would get a second session
after a while (decision 0154), and no journal could say what is due to it.
"""

from __future__ import annotations

import math
import sys
from typing import Final

from faults import short_log
from wanderbus.cli import main
from wanderbus.peers import session_owners

SHORT_LOG: Final = "--short-log"


def wait_for_servers() -> None:
    """Let the servers of this process postpone calls for as long as another server is down."""
    assert 0 < session_owners.POSTPONED_S < math.inf
    vars(session_owners).update(POSTPONED_S=math.inf)


if __name__ == "__main__":
    wait_for_servers()
    if SHORT_LOG in sys.argv:
        sys.argv.remove(SHORT_LOG)
        short_log.shorten()
    main()
