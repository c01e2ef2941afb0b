"""AdmissionReview, both ways: the question to a webhook, and the meaning of its answer.

Called by `admission` (questions) and `webhook_calls` (answers). Pure, except for the uid of a question.

Source: https://kubernetes.io/docs/reference/config-api/apiserver-admission.v1/; the texts of refusals and failures:
k8s.io/apiserver v0.35, pkg/admission/plugin/webhook.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final

import orjson

from cotide_sim.apiserver.admission.webhooks import Operation, Webhook
from cotide_sim.apiserver.refusals import Refusal
from cotide_sim.apiserver.registry.resources import Json

API_VERSION: Final = "admission.k8s.io/v1"
USER: Final[Json] = {"username": "system:admin", "groups": ["system:masters", "system:authenticated"]}
"""The requesting user, as webhooks see it: this server has no users, and one token permits all requests."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a webhook."""

    allowed: bool
    patch: list[Any] | None = None
    code: int = 0
    reason: str = ""
    message: str = ""
    warnings: tuple[str, ...] = ()

    def refusal(self, webhook: str) -> Refusal:
        """Return the refusal of a request that was not allowed, with a real server's text."""
        denied = f'admission webhook "{webhook}" denied the request'
        why = self.message or self.reason
        text = f"{denied}: {why}" if why else f"{denied} without explanation"
        return Refusal(max(self.code, 400), self.reason or "BadRequest", text)


@dataclass(frozen=True, slots=True)
class Failure:
    """A call without a usable answer, and the reason."""

    why: str

    def refusal(self, webhook: str) -> Refusal:
        """Return the refusal of a request with a mandatory webhook."""
        text = f'Internal error occurred: failed calling webhook "{webhook}": {self.why}'
        cause = {"message": f'failed calling webhook "{webhook}": {self.why}'}
        return Refusal(500, "InternalError", text, details={"causes": [cause]})


Reviewed = Verdict | Failure


@dataclass(frozen=True, slots=True)
class Call:
    """A question to one webhook; two with the same key are the same question."""

    hook: Webhook
    question: Json
    key: bytes
    uid: str
    mutating: bool

    def body(self) -> bytes:
        """Return the AdmissionReview to send."""
        request = {"uid": self.uid, **self.question}
        return orjson.dumps({"kind": "AdmissionReview", "apiVersion": API_VERSION, "request": request})


def question(what: Operation, version: str, obj: Json | None, old: Json | None, *, dry_run: bool) -> Json:
    """Return the request part of a review, without its uid."""
    resource = what.resource

    def kind(name: str) -> Json:
        return {"group": resource.group, "version": name, "kind": resource.kind}

    def plural(name: str) -> Json:
        return {"group": resource.group, "version": name, "resource": resource.plural}

    asked: Json = {
        "kind": kind(version), "resource": plural(version),
        "requestKind": kind(what.version), "requestResource": plural(what.version),
        "operation": what.verb, "userInfo": USER, "object": obj, "oldObject": old, "dryRun": dry_run,
    }  # fmt: skip
    if what.subresource:
        asked["subResource"] = asked["requestSubResource"] = what.subresource
    if what.name:
        asked["name"] = what.name
    if what.namespace:
        asked["namespace"] = what.namespace
    options = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}[what.verb]
    asked["options"] = {"kind": options, "apiVersion": "meta.k8s.io/v1"} | ({"dryRun": ["All"]} if dry_run else {})
    return asked


def read_answer(body: bytes, call: Call) -> Reviewed:
    """Return the meaning of a webhook's answer; one that breaks the protocol is a failure of the call."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return Failure(f"failed to call webhook: couldn't get version/kind; json parse error: {error}")
    if not isinstance(review, dict) or not isinstance(review.get("response"), dict):
        return _broken("webhook response was absent")
    response = review["response"]
    if response.get("uid") != call.uid:
        return _broken(f'expected response.uid="{call.uid}", got "{response.get("uid") or ""}"')
    if (review.get("apiVersion"), review.get("kind")) != (API_VERSION, "AdmissionReview"):
        return _broken(
            f"expected webhook response of {API_VERSION}, Kind=AdmissionReview, got {review.get('apiVersion') or '/'}, "
            f"Kind={review.get('kind') or ''}"
        )
    encoded, kind = response.get("patch"), response.get("patchType")
    if not call.mutating and (encoded or kind):
        return _broken(f"validating webhook may not return response.{'patch' if encoded else 'patchType'}")
    if bool(encoded) is not bool(kind):
        given, missing = ("patch", "patchType") if encoded else ("patchType", "patch")
        return _broken(f"webhook returned response.{given} but not response.{missing}")
    patch: Any = None
    if encoded:
        try:
            patch = orjson.loads(base64.b64decode(encoded, validate=True))
        except (TypeError, binascii.Error, orjson.JSONDecodeError) as error:
            return Failure(f"received undecodable patch in webhook response: {error}")
        if kind != "JSONPatch":
            return Failure(f'unsupported patch type "{kind}"')
    status = response.get("status")
    status = status if isinstance(status, dict) else {}
    code, warnings = status.get("code"), response.get("warnings")
    return Verdict(
        allowed=response.get("allowed") is True,
        patch=patch,
        code=code if isinstance(code, int) else 0,
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        warnings=tuple(str(warning) for warning in warnings) if isinstance(warnings, list) else (),
    )


def _broken(why: str) -> Failure:
    return Failure(f"received invalid webhook response: {why}")
