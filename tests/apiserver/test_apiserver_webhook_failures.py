"""Webhooks that fail, are down, slow or untrusted, and configurations that are wrong."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from webhook_stand import (
    MERGE,
    MUTATING,
    PODS,
    RULE,
    Review,
    configuration,
    emulator,
    everything,
    patched,
    pod,
    register,
    webhook,
)

from cotide_sim.apiserver.http.certificates import self_signed

BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": "short"}, "webhooks[0].name: Invalid value"),
    ({"sideEffects": None}, "webhooks[0].sideEffects: Required value"),
    ({"sideEffects": "Some"}, 'webhooks[0].sideEffects: Unsupported value: "Some"'),
    ({"admissionReviewVersions": []}, "webhooks[0].admissionReviewVersions: Required value"),
    ({"admissionReviewVersions": ["v1beta1"]}, "must include at least one of v1"),
    ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds: Invalid value: 31"),
    ({"failurePolicy": "Maybe"}, "webhooks[0].failurePolicy: Unsupported value"),
    ({"matchConditions": [{"name": "x", "expression": "true"}]}, "webhooks[0].matchConditions: Forbidden"),
    ({"clientConfig": {}}, "exactly one of url or service is required"),
    ({"clientConfig": {"url": "http://x.dev/"}}, "'https' is the only allowed URL scheme"),
    ({"clientConfig": {"url": "https://x.dev/?a=b"}}, "query parameters are not permitted in the URL"),
    ({"clientConfig": {"url": "https://[/"}}, "url must be a valid URL"),
    ({"clientConfig": {"service": {"name": "a"}}}, "webhooks[0].clientConfig.service.namespace: Required value"),
    ({"clientConfig": {"service": {"namespace": "a", "name": "b", "path": "c"}}}, "must start with a '/'"),
    ({"rules": [{**RULE, "operations": ["READ"]}]}, 'webhooks[0].rules[0].operations[0]: Unsupported value: "READ"'),
    ({"rules": [{**RULE, "resources": []}]}, "webhooks[0].rules[0].resources: Required value"),
    ({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "not a valid selector operator"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
async def test_a_bad_configuration_is_refused_with_its_field(changes: dict[str, Any], sentence: str) -> None:
    async with emulator() as (_, user):
        status, body = await user("POST", MUTATING, configuration({**webhook(1), **changes}))
        assert status == 422
        assert sentence in body["message"]


async def test_a_field_of_a_wrong_type_is_a_bad_request() -> None:
    async with emulator() as (_, user):
        status, body = await user("POST", MUTATING, configuration({**webhook(1), "timeoutSeconds": "5"}))
        assert (status, body["reason"]) == (400, "BadRequest")


async def test_an_address_that_is_none_fails_the_call_and_not_the_server() -> None:
    async with everything() as (user, hook):
        service = {"namespace": "default", "name": "hook", "port": 443}
        await register(user, webhook(1, clientConfig={"service": service}))
        await user(
            "POST",
            "/api/v1/namespaces/default/services",
            {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}},
        )
        subset = {"addresses": [{"ip": "no/address"}], "ports": [{"port": hook.port}]}
        await user("POST", "/api/v1/namespaces/default/endpoints", {"metadata": {"name": "hook"}, "subsets": [subset]})
        status, body = await user("POST", PODS, pod())
        assert (status, body["reason"]) == (500, "InternalError")
        assert 'failed calling webhook "one.example.dev": failed to call webhook: ' in body["message"]


FAILURES: list[tuple[str, Callable[[Review], Any], str]] = [
    ("says no 200", lambda _: web.Response(status=500, text="boom"), 'an error on the server ("boom")'),
    ("rejects the review", lambda _: web.Response(status=400), "the server rejected our request for an unknown reason"),
    ("answers no JSON", lambda _: web.Response(text="hello"), "json parse error"),
    ("answers nothing", lambda _: web.json_response({}), "webhook response was absent"),
    ("answers another question", lambda _: {"allowed": True, "uid": "x"}, 'expected response.uid="'),
    ("sends a patch that is none", lambda _: {"allowed": True, "patch": "!", "patchType": "JSONPatch"}, "undecodable"),
    (
        "sends another kind of patch",
        lambda _: {"allowed": True, "patch": "W10=", "patchType": "x"},
        "unsupported patch",
    ),
    ("forgets the patch", lambda _: {"allowed": True, "patchType": "JSONPatch"}, "but not response.patch"),
    ("forgets the patch type", lambda _: {"allowed": True, "patch": "W10="}, "not response.patchType"),
]


@pytest.mark.parametrize(("answer", "words"), [one[1:] for one in FAILURES], ids=[one[0] for one in FAILURES])
async def test_a_webhook_that_fails_refuses_the_write_or_is_passed_over(
    answer: Callable[[Review], Any], words: str
) -> None:
    async with everything() as (user, hook):
        await register(user, webhook(hook.port))
        hook.answer = answer
        status, body = await user("POST", PODS, pod())
        assert (status, body["reason"]) == (500, "InternalError")
        assert body["message"].startswith('Internal error occurred: failed calling webhook "one.example.dev": ')
        assert words in body["message"]
        ignored = configuration(webhook(hook.port, failurePolicy="Ignore"))
        version = (await user("GET", f"{MUTATING}/hooks"))[1]["metadata"]["resourceVersion"]
        ignored["metadata"]["resourceVersion"] = version
        assert (await user("PUT", f"{MUTATING}/hooks", ignored))[0] == 200
        assert (await user("POST", PODS, pod()))[0] == 201


async def test_a_webhook_that_is_down_slow_or_untrusted_is_told_as_kubernetes_tells_it() -> None:
    async with everything() as (user, hook):
        await register(user, webhook(hook.port, timeoutSeconds=1))
        hook.pause = asyncio.Event()
        body = (await user("POST", PODS, pod()))[1]
        assert body["message"].endswith(
            f'Post "https://127.0.0.1:{hook.port}/look?timeout=1s": context deadline exceeded'
        )
        hook.pause.set()
        stranger = base64.b64encode(self_signed("127.0.0.1").authority_pem).decode()
        client = {"url": f"https://127.0.0.1:{hook.port}/look", "caBundle": stranger}
        await user("PATCH", f"{MUTATING}/hooks", {"webhooks": [webhook(hook.port, clientConfig=client)]}, MERGE)
        assert "failed to verify certificate: x509" in (await user("POST", PODS, pod()))[1]["message"]
        client = {**client, "caBundle": base64.b64encode(b"no certificate").decode()}
        await user("PATCH", f"{MUTATING}/hooks", {"webhooks": [webhook(hook.port, clientConfig=client)]}, MERGE)
        assert "unable to load root certificates" in (await user("POST", PODS, pod()))[1]["message"]
    async with emulator() as (_, user):
        await register(user, webhook(hook.port))  # nobody listens there any more
        assert "connect: connection refused" in (await user("POST", PODS, pod()))[1]["message"]
        assert (await user("DELETE", f"{MUTATING}/hooks"))[
            0
        ] == 200  # never shown to a webhook, so it can be taken away
        assert (await user("POST", PODS, pod()))[0] == 201


async def test_a_patch_that_does_not_fit_is_an_error_whatever_the_failure_policy() -> None:
    async with everything() as (user, hook):
        await register(user, webhook(hook.port, failurePolicy="Ignore"))
        hook.answer = lambda _: patched({"op": "remove", "path": "/spec/nothing"})
        status, body = await user("POST", PODS, pod())
        assert (status, body["reason"]) == (500, "InternalError")
        hook.answer = lambda _: patched({"op": "replace", "path": "/spec/containers", "value": []})
        status, body = await user("POST", PODS, pod())
        assert status == 422
        assert "spec.containers" in body["message"]
