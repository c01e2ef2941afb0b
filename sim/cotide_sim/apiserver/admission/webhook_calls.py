"""The calls to webhooks: HTTPS, verified against the configuration's authority, with its timeout.

Called by the server for every `Consult`. A webhook behind a service is reached at the service's external name, or at
the first address of the Endpoints of that name. This emulator gives services no addresses and writes no Endpoints, so a
client that needs them writes them (loopback addresses are accepted, which a real server refuses). Invariant: a call
ends with an answer or with a `Failure`, within its timeout; it never raises.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp
from yarl import URL

from cotide_sim.apiserver.admission.admission_reviews import Call, Failure, Reviewed, read_answer
from cotide_sim.apiserver.admission.webhooks import Service, Webhook
from cotide_sim.apiserver.cluster import Cluster

log = logging.getLogger(__name__)

Resume = Callable[[dict[bytes, Reviewed]], None]


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """The address of a webhook: its name in messages, the address to dial, and the name in its certificate."""

    url: str
    dialled: URL
    server_name: str | None = None


class WebhookCalls:
    """Calls webhooks, many at a time, on one session."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[bytes, ssl.SSLContext] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, calls: Sequence[Call], resume: Resume) -> None:
        """Call webhooks concurrently, and go on with all their answers."""
        task = asyncio.get_running_loop().create_task(self._ask(calls, resume))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End the calls that are open, and the session."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, calls: Sequence[Call], resume: Resume) -> None:
        found = await asyncio.gather(*(self._call(call) for call in calls), return_exceptions=True)
        answers: dict[bytes, Reviewed] = {}
        for call, answer in zip(calls, found, strict=True):
            if isinstance(answer, BaseException):  # a fault of the emulator must not leave a request without an answer
                log.error("the call of webhook %s met a fault of the emulator", call.hook.name, exc_info=answer)
                answers[call.key] = Failure("the emulator has a fault; its log has the details")
            else:
                answers[call.key] = answer
        resume(answers)

    async def _call(self, call: Call) -> Reviewed:
        hook = call.hook
        endpoint = self._endpoint(hook)
        if isinstance(endpoint, Failure):
            return endpoint
        try:
            context = self._context(hook.authority_pem)
        except ssl.SSLError:
            return Failure("unable to load root certificates: unable to parse bytes as PEM block")
        post = f'failed to call webhook: Post "{endpoint.url}?timeout={hook.timeout_seconds}s"'
        try:
            async with asyncio.timeout(hook.timeout_seconds):
                status, body = await self._post(endpoint, context, call.body(), hook.timeout_seconds)
        except TimeoutError:
            return Failure(f"{post}: context deadline exceeded")
        except aiohttp.ClientConnectorCertificateError as error:
            return Failure(f"{post}: tls: failed to verify certificate: x509: {error.certificate_error}")
        except aiohttp.ClientConnectorError as error:
            address = f"{endpoint.dialled.host}:{endpoint.dialled.port}"
            words = os.strerror(error.os_error.errno).lower() if error.os_error.errno else str(error.os_error)
            return Failure(f"{post}: dial tcp {address}: connect: {words}")
        except (aiohttp.ClientError, OSError) as error:
            return Failure(f"{post}: {str(error) or 'EOF'}")
        if status != 200:
            return Failure(f"failed to call webhook: {_words(status, body)}")
        return read_answer(body, call)

    async def _post(self, endpoint: _Endpoint, context: ssl.SSLContext, body: bytes, seconds: int) -> tuple[int, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Host": endpoint.server_name or ""}
        if endpoint.server_name is None:
            del headers["Host"]
        url = endpoint.dialled.with_query({"timeout": f"{seconds}s"})
        for last in (False, True):
            try:
                async with self._session.post(
                    url, data=body, headers=headers, ssl=context, server_hostname=endpoint.server_name,
                    allow_redirects=False,
                ) as answer:  # fmt: skip
                    return answer.status, await answer.read()
            except aiohttp.ServerDisconnectedError:
                # A kept connection may have been closed at the other end; a new one shows whether the webhook is
                # reachable.
                if last:
                    raise
        raise AssertionError("unreachable")

    def _context(self, authority_pem: bytes) -> ssl.SSLContext:
        context = self._contexts.get(authority_pem)
        if context is None:
            context = ssl.create_default_context()
            if authority_pem:
                context = ssl.create_default_context(cadata=authority_pem.decode("ascii", "replace"))
            self._contexts[authority_pem] = context
        return context

    def _endpoint(self, hook: Webhook) -> _Endpoint | Failure:
        if hook.service is None:
            try:
                return _Endpoint(hook.url, URL(hook.url))
            except ValueError as error:
                return Failure(f"failed to call webhook: {error}")
        service = hook.service
        name = f"{service.name}.{service.namespace}.svc"
        url = f"https://{name}:{service.port}{service.path}"
        address = self._address(service)
        if isinstance(address, Failure):
            return address
        host, port = address
        try:
            return _Endpoint(url, URL.build(scheme="https", host=host, port=port, path=service.path), name)
        except ValueError as error:
            return Failure(f"failed to call webhook: {error}")

    def _address(self, service: Service) -> tuple[str, int] | Failure:
        found = self._cluster.collection("services").get(service.namespace, service.name)
        if found is None:
            return Failure(f'failed to call webhook: service "{service.name}" not found')
        spec = found.decode().get("spec") or {}
        if spec.get("type") == "ExternalName":  # at any port that the webhook names, as on a real server
            return str(spec.get("externalName")), service.port
        offered = spec.get("ports") or ()
        named = next((port for port in offered if port.get("port") == service.port), None)
        if named is None:
            return Failure(f'failed to call webhook: no service port {service.port} found for service "{service.name}"')
        behind = self._cluster.collection("endpoints").get(service.namespace, service.name)
        for subset in (behind.decode().get("subsets") or ()) if behind is not None else ():
            addresses = subset.get("addresses") or ()
            ports = (port["port"] for port in subset.get("ports") or () if port.get("name") == named.get("name"))
            if addresses and (port := next(ports, None)) is not None:
                return str(addresses[0]["ip"]), int(port)
        return Failure(f'failed to call webhook: no endpoints available for service "{service.name}"')


def _words(status: int, body: bytes) -> str:
    """Return a real server's text on an answer that is not a review."""
    text = body[:200].decode("utf-8", "replace").strip()
    match status:
        case 400:
            return "the server rejected our request for an unknown reason"
        case 404:
            return "the server could not find the requested resource"
        case 500:
            return f'an error on the server ("{text}") has prevented the request from succeeding'
        case 503:
            return "the server is currently unable to handle the request"
    return f"the server responded with the status code {status} but did not return more information"
