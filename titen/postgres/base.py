"""Django's PostgreSQL backend with a health check that asks the socket instead of the server."""

import select
import time
from typing import Any

from django.db.backends.postgresql import base

# How often a connection that takes no writes is replaced, in case that only its session is like that.
READ_ONLY_SECONDS = 1.0
# The server says these unasked whenever they change, so that they can be read here without a question.
_READ_ONLY = ("default_transaction_read_only", "in_hot_standby")


class DatabaseWrapper(base.DatabaseWrapper):
    """A persistent connection is checked once a request; `SELECT 1` would cost a round trip each time."""

    _made_at = 0.0

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Note when."""
        made = super().get_new_connection(conn_params)
        self._made_at = time.monotonic()
        return made

    def is_usable(self) -> bool:
        """False when the server has closed the connection, or when it may be time for one that takes writes.

        Between requests the server sends nothing, so anything readable is its farewell (or says that it has
        become read-only, or no longer is). What a session was told when it began, or a server that was a
        standby then, stays with the connection: while it takes no writes it is made anew from time to time.
        """
        connection: Any = self.connection
        if connection is None or connection.closed or connection.broken:
            return False
        if self._takes_no_writes() and time.monotonic() > self._made_at + READ_ONLY_SECONDS:
            return False
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poll.poll(0)

    def _takes_no_writes(self) -> bool:
        connection: Any = self.connection
        return any(connection.info.parameter_status(name) == "on" for name in _READ_ONLY)
