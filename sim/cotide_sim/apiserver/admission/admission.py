"""Shows writes to the webhooks that select them, and applies their changes and refusals.

Called by `writing` and `dispatch` through `Cluster.admission`, which is None while no configuration exists: then
admission costs one attribute read a write. Every decision here is immediate, from known answers. Where an answer is
missing, `Consult` leaves the request, the server calls the webhook, and the request runs once more from its beginning
with the answer. So an object that changed meanwhile is shown again, and no write stays half-done::

    request --> mutate --(no answer yet)--> Consult --> webhook_calls --> request again, with the answer
                   `--(all answers here)--> checks --> validate --(as above)--> store

Invariant: a request asks the same question once.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence

import orjson

from cotide_sim.apiserver.admission.admission_reviews import Call, Failure, Reviewed, Verdict, question
from cotide_sim.apiserver.admission.webhooks import Operation, Webhook, webhooks_of
from cotide_sim.apiserver.cluster import Cluster, Write, WriteOptions
from cotide_sim.apiserver.patch.json_patch import json_patch
from cotide_sim.apiserver.refusals import Refusal
from cotide_sim.apiserver.registry.resources import Json, Resource
from cotide_sim.apiserver.storage.store import Change, Collection, Entry

log = logging.getLogger(__name__)

_MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
_VALIDATING = "validatingwebhookconfigurations.admissionregistration.k8s.io"


class Consult(Exception):
    """Leaves a request that cannot go on before these webhooks have answered."""

    def __init__(self, calls: Sequence[Call], given: Json | None = None) -> None:
        super().__init__(", ".join(call.hook.name for call in calls))
        self.calls = calls
        self.given = given or {}


class Admission:
    """The webhooks of all configurations, in the order of their calls."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._mutating: tuple[Webhook, ...] = ()
        self._validating: tuple[Webhook, ...] = ()
        cluster.store.listeners.append(self._changed)

    def read(self) -> None:
        """Read all configurations."""
        self._mutating, self._validating = self._hooks(_MUTATING), self._hooks(_VALIDATING)
        self._cluster.admission = self if self._mutating or self._validating else None

    def _hooks(self, key: str) -> tuple[Webhook, ...]:
        collection = self._cluster.collection(key)  # its entries come by name, as a real server sorts them
        return tuple(hook for entry in collection.entries() for hook in webhooks_of(entry.decode()))

    def _changed(self, collection: Collection, change: Change) -> None:
        del change
        if collection.resource.key in (_MUTATING, _VALIDATING):
            self.read()

    def mutate(self, write: Write, subresource: str) -> Json | None:
        """Return a write's object after the changes of webhooks, or None without changes.

        Raises
        ------
        Consult
            When an answer is missing.
        Refusal
            When a webhook refuses the write, or fails with the policy Fail.
        """
        if not self._mutating:
            return None
        obj, old = write.obj, write.old
        what = _operation(write, subresource)
        hooks = [hook for hook in self._mutating if hook.version_for(what) is not None]
        if not hooks:
            return None
        first = shown = _before_creation(write.resource, obj) if old is None else obj
        seen: dict[int, Json] = {}
        try:
            for index, hook in enumerate(hooks):
                shown = seen[index] = self._mutated(hook, what, shown, old, write.options)
            for index, hook in enumerate(hooks):
                if hook.reinvoked and shown != seen[index]:
                    shown = self._mutated(hook, what, shown, old, write.options)
        except Consult as wanted:
            raise Consult(wanted.calls, _given(write)) from None
        return None if shown is first else shown

    def validate(self, write: Write, subresource: str) -> None:
        """Show every webhook a write's final form; raises as `mutate` does."""
        if self._validating:
            try:
                self._validate(_operation(write, subresource), write.obj, write.old, write.options)
            except Consult as wanted:
                raise Consult(wanted.calls, _given(write)) from None

    def release(self, resource: Resource, version: str, entry: Entry, options: WriteOptions) -> None:
        """Show webhooks a deletion; raises as `mutate` does."""
        what = Operation("DELETE", resource, version, "", entry.namespace, entry.name)
        if any(hook.version_for(what) is not None for hook in (*self._mutating, *self._validating)):
            old = entry.decode()
            self._validate(what, None, old, options, self._mutating)
            self._validate(what, None, old, options)

    def _validate(
        self,
        what: Operation,
        obj: Json | None,
        old: Json | None,
        options: WriteOptions,
        hooks: Iterable[Webhook] | None = None,
    ) -> None:
        missing: list[Call] = []
        for hook in self._validating if hooks is None else hooks:
            call = self._call(hook, what, obj, old, options, mutating=hooks is not None)
            if call is None:
                continue
            answer = _answer(call, options)
            if answer is None:
                missing.append(call)
            elif not missing:
                verdict = _verdict(hook, answer, options)
                if verdict is not None and verdict.patch:  # of a mutating webhook, which deletions are shown to, too
                    raise _internal(
                        f'admission webhook "{hook.name}" attempted to modify the object, which is not supported for '
                        "this operation"
                    )
        if missing:
            raise Consult(missing)

    def _mutated(self, hook: Webhook, what: Operation, obj: Json, old: Json | None, options: WriteOptions) -> Json:
        call = self._call(hook, what, obj, old, options, mutating=True)
        if call is None:
            return obj
        answer = _answer(call, options)
        if answer is None:
            raise Consult([call])
        verdict = _verdict(hook, answer, options)
        if verdict is None or not verdict.patch:
            return obj
        try:
            patched = json_patch(copy.deepcopy(call.question["object"]), verdict.patch)
        except Refusal as refusal:
            raise _internal(refusal.message) from None
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise _internal(f'the patch of webhook "{hook.name}" leaves no object')
        stored = what.resource.to_storage(call.question["kind"]["version"], patched)
        stored["apiVersion"] = what.resource.storage_version
        return stored

    def _call(
        self,
        hook: Webhook,
        what: Operation,
        obj: Json | None,
        old: Json | None,
        options: WriteOptions,
        *,
        mutating: bool,
    ) -> Call | None:
        version = hook.version_for(what)
        if version is None or not hook.selects(self._space_labels(what, obj, old), (obj, old)):
            return None
        asked = question(
            what, version, _seen(what, version, obj), _seen(what, version, old), dry_run=options.dry_run
        )  # fmt: skip
        key = orjson.dumps([hook.configuration, hook.name, mutating, asked], option=orjson.OPT_SORT_KEYS)
        return Call(hook, asked, key, self._cluster.new_uid(), mutating)

    def _space_labels(self, what: Operation, obj: Json | None, old: Json | None) -> dict[str, str] | None:
        if what.resource.key == "namespaces":
            labels: dict[str, str] = ((obj or old or {}).get("metadata") or {}).get("labels") or {}
            return labels
        space = self._cluster.namespace(what.namespace) if what.namespace else None
        return space.labels if space is not None else None


def _operation(write: Write, subresource: str) -> Operation:
    metadata, verb = write.obj["metadata"], "CREATE" if write.old is None else "UPDATE"
    generated = write.old is None and metadata.get("generateName")
    return Operation(
        verb, write.resource, write.version, subresource, metadata.get("namespace") or "",
        "" if generated else str(metadata["name"]),
    )  # fmt: skip


def _given(write: Write) -> Json:
    """Return the fields that the server set in a new object."""
    metadata = write.obj["metadata"]
    return {key: metadata[key] for key in ("name", "uid", "creationTimestamp")} if write.old is None else {}


def _before_creation(resource: Resource, obj: Json) -> Json:
    """Return a new object as a webhook sees it: uid, time, generated name and a pod's status are given afterwards."""
    metadata = {
        key: value
        for key, value in obj["metadata"].items()
        if key not in ("uid", "resourceVersion", "generation", "creationTimestamp")
    }
    if metadata.get("generateName"):
        metadata.pop("name", None)
    shown = {**obj, "metadata": metadata}
    if resource.key == "pods":
        shown["status"] = {}
    return shown


def _seen(what: Operation, version: str, obj: Json | None) -> Json | None:
    if obj is None or what.resource.api_version(version) == what.resource.storage_version:
        return obj
    return what.resource.shown_as(version, copy.deepcopy(obj))


def _internal(why: str) -> Refusal:
    return Refusal(500, "InternalError", f"Internal error occurred: {why}")


def _answer(call: Call, options: WriteOptions) -> Reviewed | None:
    return options.reviews.answers.get(call.key) if options.reviews is not None else None


def _verdict(hook: Webhook, answer: Reviewed, options: WriteOptions) -> Verdict | None:
    """Return a webhook's answer; None for a failed one that may be ignored."""
    if isinstance(answer, Failure):
        if not hook.ignores_failures:
            raise answer.refusal(hook.name)
        log.warning('failed calling webhook "%s", failing open: %s', hook.name, answer.why)
        return None
    options.warnings += answer.warnings
    if not answer.allowed:
        raise answer.refusal(hook.name)
    return answer
