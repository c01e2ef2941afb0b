"""Node actuators: who starts and stops machines for the book of orders.

Used by `carrying`. A command or a webhook of the user's, told an order's id each time, so that asking twice does no
harm; or scale subresources, whose numbers are absolute and so can't be reached twice. Invariants: no answer in time is
`Answer.UNKNOWN`, never a guess; a dry run changes nothing outside.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final, Protocol

import aiohttp
import orjson
from urllib3.exceptions import HTTPError

from cotide_core.errors import ClusterError
from cotide_core.provisioning.node_orders import Action, Answer, NodeInstruction
from cotide_kube.answers import ApiError, read_status

FAILED_EXIT: Final = 3
"""Exit code by which a command says that the node failed for good; any other but 0 is no answer."""
GONE_EXIT: Final = 4
"""Exit code by which a command says that there is no such node, or no longer."""


class NodeActuator(Protocol):
    """Starts, cancels and stops machines; cordons are the caller's."""

    async def do(self, instruction: NodeInstruction) -> Answer:
        """Carry out one START, CANCEL or STOP, at most once for each order or node, and say how it went."""
        ...


class CommandActuator:
    """Runs the user's command with the action, the subject and the type as arguments: ``start capacity-a-7 a``.

    Exit code 0 is done (for ``cancel``: gone), 3 failed, 4 gone. The command must know ids that it has seen.
    """

    def __init__(self, command: tuple[str, ...], timeout_seconds: float) -> None:
        """Take the program with its first arguments."""
        self._command, self._timeout = command, timeout_seconds

    async def do(self, instruction: NodeInstruction) -> Answer:
        """Run the command once."""
        action, subject, kind = instruction
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, action.value, subject, kind, stdin=asyncio.subprocess.DEVNULL
            )
        except OSError:
            return Answer.UNKNOWN
        try:
            code = await asyncio.wait_for(process.wait(), self._timeout)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                process.kill()
            await process.wait()
            return Answer.UNKNOWN
        if code == 0:
            return Answer.GONE if action is Action.CANCEL else Answer.ACCEPTED
        return {FAILED_EXIT: Answer.FAILED, GONE_EXIT: Answer.GONE}.get(code, Answer.UNKNOWN)


class WebhookActuator:
    """POSTs ``{"action", "subject", "kind"}`` with the subject as ``Idempotency-Key``.

    2xx is done (for ``cancel``: gone), 410 gone, 422 failed; anything else, and no answer in time, is no answer.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, timeout_seconds: float) -> None:
        """Take a session, which stays the caller's."""
        self._session, self._url = session, url
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)

    async def do(self, instruction: NodeInstruction) -> Answer:
        """Send the instruction once."""
        action, subject, kind = instruction
        body = orjson.dumps({"action": action.value, "subject": subject, "kind": kind})
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"{action.value}:{subject}"}
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, timeout=self._timeout, allow_redirects=False
            ) as answer:
                code = answer.status
        except (aiohttp.ClientError, TimeoutError):
            return Answer.UNKNOWN
        if 200 <= code < 300:
            return Answer.GONE if action is Action.CANCEL else Answer.ACCEPTED
        return {410: Answer.GONE, 422: Answer.FAILED}.get(code, Answer.UNKNOWN)


class DryRun:
    """Says what would be done and answers nothing: the book stays as it is."""

    def __init__(self) -> None:
        self.instructions: list[NodeInstruction] = []

    async def do(self, instruction: NodeInstruction) -> Answer:
        """Keep the instruction."""
        self.instructions.append(instruction)
        return Answer.UNKNOWN


class ScaleSubresource:
    """Raises the replicas of what makes nodes: a Cluster API MachineDeployment, or anything with a scale subresource.

    Through the official client, in a thread. Replicas are absolute, so the same number twice starts nothing twice. They
    are never lowered here: a scale subresource can't be told which node is to go, and it might take a busy one. What is
    written names the version that was read: of two who write at once one is refused, and reads again at its next turn.
    """

    def __init__(self, api: Any, paths: Mapping[str, str], timeout_seconds: float) -> None:
        """Take a `kubernetes.client.ApiClient` that does not ask again by itself, and the API path of each type."""
        self._api, self._paths, self._timeout = api, dict(paths), timeout_seconds

    @property
    def kinds(self) -> tuple[str, ...]:
        """Machine types that have such an object."""
        return tuple(self._paths)

    async def raise_to(self, kind: str, replicas: int) -> bool:
        """Set the replicas of a type unless there are as many; return whether that changed anything.

        Raises
        ------
        ClusterError
            When the API server refuses, or does not answer.
        """
        return await asyncio.to_thread(self._raise_to, self._paths[kind], replicas)

    def _raise_to(self, path: str, replicas: int) -> bool:
        scale = self._call("GET", f"{path}/scale", None)
        # A field of 0 is left out of an answer.
        if int((scale.get("spec") or {}).get("replicas") or 0) >= replicas:
            return False
        version = (scale.get("metadata") or {}).get("resourceVersion")
        body: dict[str, Any] = {"spec": {"replicas": replicas}}
        if version:
            body["metadata"] = {"resourceVersion": version}
        self._call("PATCH", f"{path}/scale", body)
        return True

    def _call(self, method: str, path: str, body: Any) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        request = self._api.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
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
