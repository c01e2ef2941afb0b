"""Node actuators: start and stop machines for the book of orders.

Used by `carrying`. One kind is a command or a webhook of the user's. It receives the order's id each time, so that a
repeated request does no harm. The other kind is scale subresources: their numbers are absolute and therefore safe to
repeat. Invariants: without an answer in time the result is `Answer.UNKNOWN`, never a guess; a dry run changes nothing
outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import aiohttp
import orjson
from urllib3.exceptions import HTTPError

from cotide_core.errors import ClusterError
from cotide_core.provisioning.node_orders import Action, Answer, NodeInstruction
from cotide_kube.answers import ApiError, read_status

_LOG = logging.getLogger(__name__)

FAILED_EXIT: Final = 3
"""Exit code of a command for a node that failed permanently; any other code except 0 is no answer."""
GONE_EXIT: Final = 4
"""Exit code of a command for a node that does not exist, or no longer exists."""


COMPLAIN_SECONDS: Final = 60.0
"""Seconds between two log lines about an actuator that gives no answer: an outage must not fill the log."""


class _Silence:
    """Logs why there is no answer: otherwise a mistyped path looks like machines that do not come."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def emit(self, instruction: NodeInstruction, why: str) -> Answer:
        """Log each reason at most once a minute."""
        now = time.monotonic()
        if now - self._logged.get(why, float("-inf")) >= COMPLAIN_SECONDS:
            self._logged = {text: at for text, at in self._logged.items() if now - at < COMPLAIN_SECONDS} | {why: now}
            what = f"{instruction.action.value} {instruction.subject}"
            _LOG.warning("the actuator gave no answer to %s, which is asked again: %s", what, why)
        return Answer.UNKNOWN


class NodeActuator(Protocol):
    """Starts, cancels and stops machines; the caller does the cordons."""

    async def do(self, instruction: NodeInstruction) -> Answer:
        """Carry out one START, CANCEL or STOP, at most once for each order or node, and return the outcome."""
        ...


class CommandActuator:
    """Runs the user's command with the action, the subject and the type as arguments: ``start capacity-a-7 a``.

    Exit code 0 is done (for ``cancel``: gone), 3 failed, 4 gone. The command must recognise ids that it has seen. A
    command that does not end in time is killed together with its child processes. Its output goes to stderr: stdout is
    the caller's document.
    """

    def __init__(self, command: tuple[str, ...], timeout_seconds: float) -> None:
        """Take the program with its first arguments."""
        self._command, self._timeout, self._silence = command, timeout_seconds, _Silence()

    async def do(self, instruction: NodeInstruction) -> Answer:
        """Run the command once."""
        action, subject, kind, _ = instruction
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                action.value,
                subject,
                kind,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=_stderr(),
                start_new_session=True,  # so that its child processes can be ended with it
            )
        except (OSError, ValueError) as error:  # an invalid program name is a ValueError
            why = getattr(error, "strerror", None) or str(error)
            return self._silence.emit(instruction, f"{self._command[0]}: {why}")
        try:
            code = await asyncio.wait_for(process.wait(), self._timeout)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            return self._silence.emit(instruction, f"{self._command[0]} did not end in {self._timeout:g} s")
        if code == 0:
            return Answer.GONE if action is Action.CANCEL else Answer.ACCEPTED
        if code in _OF_EXIT:
            return _OF_EXIT[code]
        return self._silence.emit(instruction, f"{self._command[0]} ended with exit code {code}")


_OF_EXIT: Final = {FAILED_EXIT: Answer.FAILED, GONE_EXIT: Answer.GONE}
_OF_STATUS: Final = {410: Answer.GONE, 422: Answer.FAILED}


def _stderr() -> int:
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or no file: in a test, or in a service without stderr
        return asyncio.subprocess.DEVNULL


class WebhookActuator:
    """POSTs ``{"action", "subject", "kind"}`` with action and subject as ``Idempotency-Key``.

    2xx is done (for ``cancel``: gone), 410 gone, 422 failed; anything else, and no answer in time, is no answer. The
    key of a ``stop`` also contains the node's uid. Without it, a service that remembers keys would switch off a reused
    node name only once.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, timeout_seconds: float) -> None:
        """Take a session, which the caller owns and closes."""
        self._session, self._url, self._silence = session, url, _Silence()
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)

    async def do(self, instruction: NodeInstruction) -> Answer:
        """Send the instruction once."""
        action, subject, kind, uid = instruction
        body = orjson.dumps({"action": action.value, "subject": subject, "kind": kind})
        key = ":".join(filter(None, (action.value, subject, uid)))
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, timeout=self._timeout, allow_redirects=False
            ) as answer:
                code = answer.status
        except TimeoutError:
            return self._silence.emit(instruction, f"no answer in {self._timeout.total:g} s")
        except (aiohttp.ClientError, ValueError) as error:  # an invalid host name is a ValueError
            return self._silence.emit(instruction, str(error) or type(error).__name__)
        if 200 <= code < 300:
            return Answer.GONE if action is Action.CANCEL else Answer.ACCEPTED
        return _OF_STATUS[code] if code in _OF_STATUS else self._silence.emit(instruction, f"HTTP status {code}")


class DryRun:
    """Records what would be done and gives no answer: the book stays as it is."""

    def __init__(self) -> None:
        self.instructions: list[NodeInstruction] = []

    async def do(self, instruction: NodeInstruction) -> Answer:
        """Keep the instruction."""
        self.instructions.append(instruction)
        return Answer.UNKNOWN


class ScaleSubresource:
    """Raises the replicas of an object that makes nodes: a Cluster API MachineDeployment, or any scale subresource.

    It uses the official client, in a thread. Replicas are absolute, so the same number twice starts nothing twice. This
    class never lowers them: a scale subresource can't choose the node that goes, and it might take a busy one. For
    Machines, `cluster_api` can choose. A write names the version that was read. Of two concurrent writers one is
    refused, and reads again at its next turn.
    """

    def __init__(
        self,
        api: Any,
        paths: Mapping[str, str],
        timeout_seconds: float,
        permit: Callable[[], object] = lambda: None,
    ) -> None:
        """Take a `kubernetes.client.ApiClient` that does not retry by itself, and the API path of each type.

        ``permit`` raises `ClusterError` when writes are no longer permitted.
        """
        self._api, self._paths, self._timeout, self._permit = api, dict(paths), timeout_seconds, permit
        self._unanswered: dict[str, int] = {}
        """By path, replicas of a request that got no answer."""

    @property
    def paths(self) -> Mapping[str, str]:
        """API path of the object, by machine type."""
        return self._paths

    async def raise_to(self, kind: str, replicas: int) -> bool:
        """Set the replicas of a type unless it has as many; return whether this or an earlier attempt changed anything.

        Raises
        ------
        ClusterError
            When the API server refuses, or does not answer.
        """
        return await asyncio.to_thread(self._raise_to, self._paths[kind], replicas)

    def _raise_to(self, path: str, replicas: int) -> bool:
        scale = self.call("GET", f"{path}/scale")
        spec = scale.get("spec") or {}
        # An answer omits a field of 0.
        current = spec.get("replicas", 0) if isinstance(spec, dict) and scale.get("metadata") else None
        if not isinstance(current, int):
            raise ClusterError(f"GET {path}/scale: the answer is not what an API server sends")
        unanswered = self._unanswered.pop(path, None)
        if current >= replicas:
            return current == unanswered
        version = (scale.get("metadata") or {}).get("resourceVersion")
        body: dict[str, Any] = {"spec": {"replicas": replicas}}
        if version:
            body["metadata"] = {"resourceVersion": version}
        try:
            self.call("PATCH", f"{path}/scale", body)
        except ClusterError as error:
            if is_unanswered(error):
                self._unanswered[path] = replicas
            elif unanswered is not None:  # the write before may have come first
                self._unanswered[path] = unanswered
            raise
        return True

    def call(
        self, method: str, path: str, body: Any = None, *, query: Sequence[tuple[str, str]] = ()
    ) -> dict[str, Any]:
        """Send one request to the API server, in this thread.

        Raises
        ------
        ClusterError
            When it refuses, does not answer, or answers with something other than an object; before a write that is not
            permitted.
        """
        if method != "GET":
            self._permit()
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        request = self._api.param_serialize(
            method, path, query_params=list(query), header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            answer = self._api.call_api(*request, _request_timeout=self._timeout)
            raw = answer.read()
        except (OSError, HTTPError) as error:
            raise ClusterError(f"{method} {path}: no answer: {error}") from error
        if not 200 <= answer.status < 300:
            raise ApiError(answer.status, *read_status(answer.status, raw), f"{method} {path}")
        try:
            found = orjson.loads(raw)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            raise ClusterError(f"{method} {path}: the answer is not what an API server sends")
        return found


def is_unanswered(error: ClusterError) -> bool:
    """Whether the outcome of a failed write is unknown."""
    return not isinstance(error, ApiError) or error.status >= 500
