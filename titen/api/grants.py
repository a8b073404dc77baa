"""Answers that grant leases, and what becomes of the leases when nobody is there to take the answer."""

import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from .ids import read_id

logger = logging.getLogger("titen.api")


def granted_leases(content: Any) -> list[UUID]:
    """The leases that the answer of a granting verb holds, however it wraps them."""
    if not isinstance(content, dict):
        return []
    if isinstance(text := content.get("leaseId"), str):
        return [UUID(text)]
    found = [read_id("lease", content["lease_id"])] if isinstance(content.get("lease_id"), str) else []
    # A claim's own, that of the claim behind an end or a handoff, and those of a batch.
    inner = [content.get("lease"), content.get("next"), content.get("claim"), *(content.get("leases") or ())]
    return [lease for lease in found if lease] + [
        lease for each in inner for lease in granted_leases(each) if each
    ]


class GrantedResponse:
    """A response as the server sends it. If the server closes it before its end, the caller was not there any more."""

    def __init__(self, response: Any, leases: list[UUID]) -> None:
        self._response = response
        self.granted = leases
        self._taken = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._response
        self._taken = True

    def close(self) -> None:
        """Called by the server in any case: after the last part, or as soon as the connection is gone."""
        self._response.close()
        if self._taken:
            return
        # The server's entry point imports this module before Django is set up.
        from coordination.leases import answer_lost

        try:
            answer_lost(self.granted)
        except Exception:
            logger.exception("leases %s were granted to a caller who had hung up", self.granted)
