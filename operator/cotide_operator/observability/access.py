"""Access to the debug pages, decided by the API server as in controller-runtime's filter of metrics.

`http_server` uses it on every replica. A caller shows a bearer token; a TokenReview gives its user, and a
SubjectAccessReview whether that user may ``get`` the path. Invariants: any fault denies access; answers are cached for
a short while only, by the token's hash and never by the token; strangers can't cause unbounded requests to the API
server.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient

_LOG = logging.getLogger(__name__)

_WHOSE: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_WHETHER: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
KEPT_SECONDS: Final = 10.0
"""Wall seconds that an answer is cached; chosen: a page is read several times in a row, and a revoked right should
end soon."""
MAX_KEPT: Final = 256
"""Cached answers; chosen."""
TOKEN_LIMIT: Final = 16 * 1024
"""Longest reviewed token; chosen: service account tokens have about 1 KiB."""
ASKED_AT_ONCE: Final = 4
"""Callers under review at the API server at the same time; more are refused. Chosen."""
ASKED_PER_SECOND: Final = 1.0
ASKED_TOGETHER: Final = 20
"""Reviews of unknown tokens: in a second, and at once after a pause. Chosen: readers are few, and strangers may send a
new token with each request."""
USERS_KEPT: Final = 64
"""Tokens of known users without that limit, so that strangers do not lock out a reader; chosen."""
_SCHEME: Final = "bearer "


class Access(StrEnum):
    """The API server's verdict on a caller."""

    ALLOWED = "allowed"
    UNKNOWN = "unknown"
    """No token, or one without a user."""
    FORBIDDEN = "forbidden"
    UNDECIDED = "undecided"
    """The API server did not answer, or too many reviews are under way: access is denied."""


class AccessReviews:
    """Reviews callers at the API server.

    Parameters
    ----------
    client : KubeClient
        One that a standby may write with, too.
    now : callable
        Monotonic seconds; tests pass their own.
    """

    def __init__(self, client: KubeClient, *, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._now = now
        self._kept: dict[tuple[bytes, str], tuple[float, Access]] = {}
        self._asking = 0
        self._allowance, self._allowed_at = float(ASKED_TOGETHER), now()
        self._users: dict[bytes, None] = {}
        """Hashes of the latest tokens that belong to users."""
        self._last_warning = ""

    async def of(self, authorization: str, path: str) -> Access:
        """Return a caller's access to a path; ``authorization`` is the header of that name."""
        scheme, token = authorization[: len(_SCHEME)].lower(), authorization[len(_SCHEME) :].strip()
        if scheme != _SCHEME or not token or len(token) > TOKEN_LIMIT:
            return Access.UNKNOWN
        key = (hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(), path)
        known = self._kept.get(key)
        if known is not None and self._now() < known[0]:
            return known[1]
        if self._asking >= ASKED_AT_ONCE:
            return Access.UNDECIDED
        if key[0] not in self._users and not self._may_ask():
            self._keep(key, Access.UNDECIDED, 1.0 / ASKED_PER_SECOND)
            return Access.UNDECIDED
        self._asking += 1
        try:
            access = await self._ask(token, path)
        except ClusterError as error:
            self._warn_throttled(error)
            return Access.UNDECIDED
        finally:
            self._asking -= 1
        self._last_warning = ""
        self._users.pop(key[0], None)
        if access is not Access.UNKNOWN:
            self._users[key[0]] = None
            if len(self._users) > USERS_KEPT:
                del self._users[next(iter(self._users))]
        self._keep(key, access, KEPT_SECONDS)
        return access

    def _keep(self, key: tuple[bytes, str], access: Access, seconds: float) -> None:
        self._kept.pop(key, None)
        self._kept[key] = (self._now() + seconds, access)
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]

    def _may_ask(self) -> bool:
        """Use one of the remaining reviews of unknown tokens; False without any."""
        now = self._now()
        gained = (now - self._allowed_at) * ASKED_PER_SECOND
        self._allowance, self._allowed_at = min(float(ASKED_TOGETHER), self._allowance + gained), now
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True

    async def _ask(self, token: str, path: str) -> Access:
        review = await self._client.create(
            _WHOSE,
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}},
        )
        status = _status(review)
        user = status.get("user")
        if status.get("authenticated") is not True or not isinstance(user, dict) or not user.get("username"):
            return Access.UNKNOWN
        spec: dict[str, Any] = {
            "user": user["username"],
            "nonResourceAttributes": {"path": path, "verb": "get"},
            **{part: user[part] for part in ("uid", "groups", "extra") if user.get(part)},
        }
        answer = await self._client.create(
            _WHETHER,
            {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec},
        )
        verdict = _status(answer)
        allowed = verdict.get("allowed") is True and verdict.get("denied") is not True
        return Access.ALLOWED if allowed else Access.FORBIDDEN

    def _warn_throttled(self, error: ClusterError) -> None:
        if str(error) != self._last_warning:  # one line at the start of a fault
            self._last_warning = str(error)
            _LOG.warning("access to the debug pages is denied: %s", error)


def _status(review: dict[str, Any]) -> dict[str, Any]:
    status = review.get("status")
    return status if isinstance(status, dict) else {}
