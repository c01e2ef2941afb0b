"""Admission webhooks of the embedded API server: who is asked, what is sent, what an answer or a failure does."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from webhook_stand import (
    CERTIFICATES,
    MAPS,
    MERGE,
    MUTATING,
    PODS,
    RULE,
    VALIDATING,
    Hook,
    User,
    annotated,
    emulator,
    everything,
    patched,
    pod,
    register,
    serving,
    webhook,
)

from cotide_sim.apiserver.testing import running_server


async def test_a_configuration_is_kept_with_the_defaults_of_a_real_server() -> None:
    async with emulator() as (_, user):
        service = {"service": {"namespace": "tools", "name": "hook"}}
        await register(user, webhook(1, clientConfig=service))
        (kept,) = (await user("GET", f"{MUTATING}/hooks"))[1]["webhooks"]
        assert (kept["failurePolicy"], kept["matchPolicy"], kept["timeoutSeconds"]) == ("Fail", "Equivalent", 10)
        assert kept["reinvocationPolicy"] == "Never"
        assert kept["clientConfig"]["service"]["port"] == 443
        assert kept["rules"][0]["scope"] == "*"


async def test_a_mutating_webhook_changes_what_is_stored() -> None:
    async with everything() as (user, hook):
        await register(user, webhook(hook.port, timeoutSeconds=3))
        hook.answer = lambda asked: patched(
            annotated("seen"),
            {"op": "add", "path": "/spec/containers/0/resources/requests", "value": {"cpu": "1"}},
        )
        status, made = await user("POST", PODS, pod(labels={"a": "b"}))
        assert status == 201
        assert made["metadata"]["annotations"] == {"seen": "yes"}
        assert made["metadata"]["labels"] == {"a": "b"}
        assert made["status"]["qosClass"] == "Burstable"  # counted after the change
        assert (await user("GET", f"{PODS}/web"))[1] == made
        (asked,) = hook.asked
        assert asked["operation"] == "CREATE"
        assert (asked["namespace"], asked["name"], asked["dryRun"]) == ("default", "web", False)
        assert asked["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
        assert asked["resource"] == {"group": "", "version": "v1", "resource": "pods"}
        assert asked["oldObject"] is None
        assert asked["object"]["spec"]["schedulerName"] == "default-scheduler"  # shown with its defaults
        assert not {"uid", "creationTimestamp"} & asked["object"]["metadata"].keys()  # given after admission
        assert asked["object"]["status"] == {}
        assert hook.queries == [{"timeout": "3s", "host": f"127.0.0.1:{hook.port}", "path": "/look"}]


async def test_a_generated_name_is_given_after_admission_and_stays() -> None:
    async with everything() as (user, hook):
        await register(user, webhook(hook.port))
        hook.answer = lambda _: patched(annotated("seen"))
        body = pod()
        body["metadata"] = {"generateName": "web-"}
        status, made = await user("POST", PODS, body)
        assert status == 201
        assert made["metadata"]["name"].startswith("web-")
        assert len(hook.asked) == 1  # asked once, though the request was carried out twice
        assert "name" not in hook.asked[0]
        assert "name" not in hook.asked[0]["object"]["metadata"]


async def test_a_refusal_reaches_the_user_in_the_webhooks_words() -> None:
    async with everything() as (user, hook):
        await register(user, webhook(hook.port))
        hook.answer = lambda _: {
            "allowed": False,
            "status": {"code": 403, "reason": "Forbidden", "message": "not today"},
        }
        status, body = await user("POST", PODS, pod())
        assert (status, body["reason"]) == (403, "Forbidden")
        assert body["message"] == 'admission webhook "one.example.dev" denied the request: not today'
        hook.answer = lambda _: {"allowed": False}
        status, body = await user("POST", PODS, pod())
        assert (status, body["message"]) == (
            400,
            'admission webhook "one.example.dev" denied the request without explanation',
        )
        assert (await user("GET", f"{PODS}/web"))[0] == 404


async def test_warnings_are_passed_on() -> None:
    async with everything() as (user, hook):
        await register(user, webhook(hook.port))
        hook.answer = lambda _: {"allowed": True, "warnings": ["mind the gap"]}
        assert (await user("POST", PODS, pod()))[0] == 201
        assert user.warning == '299 - "mind the gap"'


async def test_who_is_asked_follows_rules_and_selectors() -> None:
    async with everything() as (user, hook):
        for name, labels in (("open", {"ask": "yes"}), ("closed", {})):
            await user("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        await register(
            user,
            webhook(
                hook.port,
                namespaceSelector={
                    "matchLabels": {"ask": "yes"},
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
                    ],
                },
                objectSelector={"matchExpressions": [{"key": "quiet", "operator": "DoesNotExist"}]},
            ),
        )
        wanted = {
            ("open", "a"): {},
            ("closed", "b"): {},
            ("open", "c"): {"quiet": ""},
        }
        for (space, name), labels in wanted.items():
            assert (await user("POST", f"/api/v1/namespaces/{space}/pods", pod(name, labels=labels)))[0] == 201
        await user("POST", "/api/v1/namespaces/open/configmaps", {"metadata": {"name": "d"}})
        await user("PATCH", "/api/v1/namespaces/open/pods/a", {"metadata": {"labels": {"x": "y"}}}, MERGE)
        assert [(asked["namespace"], asked["name"]) for asked in hook.asked] == [("open", "a")]


async def test_updates_statuses_and_deletions_are_shown_where_rules_name_them() -> None:
    async with everything() as (user, hook):
        rule = {**RULE, "operations": ["UPDATE", "DELETE"], "resources": ["pods", "pods/status"]}
        await register(user, webhook(hook.port, rules=[rule]))
        await user("POST", PODS, pod())
        hook.answer = lambda asked: (
            patched({"op": "add", "path": "/metadata/labels/by", "value": "hook"})
            if asked["operation"] == "UPDATE" and not asked.get("subResource")
            else {"allowed": True}
        )
        status, made = await user("PATCH", f"{PODS}/web", {"metadata": {"labels": {"x": "y"}}}, MERGE)
        assert (status, made["metadata"]["labels"]) == (200, {"x": "y", "by": "hook"})
        assert (await user("PATCH", f"{PODS}/web/status", {"status": {"phase": "Failed"}}, MERGE))[0] == 200
        assert (await user("DELETE", f"{PODS}/web"))[0] == 200
        assert [(one["operation"], one.get("subResource")) for one in hook.asked] == [
            ("UPDATE", None),
            ("UPDATE", "status"),
            ("DELETE", None),
        ]
        assert hook.asked[0]["oldObject"]["metadata"].get("labels") is None
        assert hook.asked[2]["object"] is None
        assert hook.asked[2]["oldObject"]["status"]["phase"] == "Failed"


async def test_a_validating_webhook_sees_the_final_object_and_can_only_say_no() -> None:
    async with everything() as (user, hook), serving(Hook()) as changer:
        await register(user, webhook(changer.port))
        await register(user, webhook(hook.port, name="two.example.dev"), path=VALIDATING)
        changer.answer = lambda _: patched(annotated("seen"))
        hook.answer = lambda asked: {"allowed": asked["object"]["metadata"]["annotations"] == {"seen": "yes"}}
        assert (await user("POST", PODS, pod()))[0] == 201
        assert "uid" in hook.asked[0]["object"]["metadata"]
        hook.answer = lambda _: {"allowed": False, "status": {"message": "no more"}}
        status, body = await user("POST", PODS, pod("other"))
        assert (status, body["message"]) == (400, 'admission webhook "two.example.dev" denied the request: no more')
        hook.answer = lambda _: patched(annotated("mine"))
        status, body = await user("POST", PODS, pod("other"))
        assert status == 500
        assert "may not return response.patch" in body["message"]


async def test_a_deletion_cant_be_patched() -> None:
    async with everything() as (user, hook):
        await user("POST", MAPS, {"metadata": {"name": "a"}})
        rule = {**RULE, "operations": ["DELETE"], "resources": ["configmaps"]}
        await register(user, webhook(hook.port, rules=[rule]))
        hook.answer = lambda _: patched(annotated("seen"))
        status, body = await user("DELETE", f"{MAPS}/a")
        assert status == 500
        assert "attempted to modify the object, which is not supported for this operation" in body["message"]
        assert (await user("GET", f"{MAPS}/a"))[0] == 200


async def test_a_refused_deletion_of_a_collection_deletes_nothing() -> None:
    async with everything() as (user, hook):
        for name in ("a", "b", "c"):
            await user("POST", MAPS, {"metadata": {"name": name}})
        rule = {**RULE, "operations": ["DELETE"], "resources": ["configmaps"]}
        await register(user, webhook(hook.port, rules=[rule]), path=VALIDATING)
        hook.answer = lambda asked: {"allowed": asked["name"] != "c"}
        assert (await user("DELETE", MAPS))[0] == 400
        assert len((await user("GET", MAPS))[1]["items"]) == 3
        hook.answer = lambda _: {"allowed": True}
        assert (await user("DELETE", MAPS))[0] == 200
        assert (await user("GET", MAPS))[1]["items"] == []


async def test_webhooks_run_in_order_and_again_where_they_ask_for_it() -> None:
    async with emulator() as (_, user), serving(Hook()) as first, serving(Hook()) as second:
        await register(
            user,
            webhook(first.port, name="a.example.dev", reinvocationPolicy="IfNeeded"),
            webhook(second.port, name="b.example.dev", reinvocationPolicy="IfNeeded"),
        )
        second.answer = lambda _: patched({"op": "add", "path": "/metadata/labels", "value": {"by": "second"}})
        assert (await user("POST", PODS, pod()))[0] == 201
        assert [asked["object"]["metadata"].get("labels") for asked in first.asked] == [None, {"by": "second"}]
        assert len(second.asked) == 1  # nothing changed after it


async def test_equivalent_versions_are_matched_and_exact_ones_are_not() -> None:
    async with everything() as (user, hook):
        both = [
            {"name": name, "served": True, "storage": name == "v1",
             "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
            for name in ("v1", "v2")
        ]  # fmt: skip
        names = {"plural": "gadgets", "kind": "Gadget"}
        spec = {"group": "example.dev", "scope": "Namespaced", "names": names, "versions": both}
        await user(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            {"metadata": {"name": "gadgets.example.dev"}, "spec": spec},
        )
        rule = {**RULE, "apiGroups": ["example.dev"], "resources": ["gadgets"]}
        await register(user, webhook(hook.port, rules=[rule]), name="loose")
        await register(user, webhook(hook.port, rules=[rule], matchPolicy="Exact"), name="strict")
        status, made = await user(
            "POST", "/apis/example.dev/v2/namespaces/default/gadgets", {"metadata": {"name": "g"}}
        )
        assert (status, made["apiVersion"]) == (201, "example.dev/v2")
        (asked,) = hook.asked
        assert (asked["kind"]["version"], asked["requestKind"]["version"]) == ("v1", "v2")
        assert asked["object"]["apiVersion"] == "example.dev/v1"


async def test_a_dry_run_is_shown_as_one_and_keeps_nothing() -> None:
    async with everything() as (user, hook):
        await register(user, webhook(hook.port))
        hook.answer = lambda _: patched(annotated("seen"))
        status, made = await user("POST", f"{PODS}?dryRun=All", pod())
        assert (status, made["metadata"]["annotations"]) == (201, {"seen": "yes"})
        assert hook.asked[0]["dryRun"] is True
        assert (await user("GET", f"{PODS}/web"))[0] == 404


async def test_a_service_leads_to_its_endpoints_by_its_own_name() -> None:
    async with everything() as (user, hook):
        service = {"namespace": "tools", "name": "hook", "path": "/mutate", "port": 443}
        bundle = base64.b64encode(CERTIFICATES.authority_pem).decode()
        await register(user, webhook(1, clientConfig={"service": service, "caBundle": bundle}))
        prefix = 'Internal error occurred: failed calling webhook "one.example.dev": failed to call webhook: '
        await user("POST", "/api/v1/namespaces", {"metadata": {"name": "tools"}})
        status, body = await user("POST", PODS, pod())
        assert (status, body["message"]) == (500, prefix + 'service "hook" not found')
        ports = [{"name": "https", "port": 443, "targetPort": hook.port}]
        await user(
            "POST", "/api/v1/namespaces/tools/services", {"metadata": {"name": "hook"}, "spec": {"ports": ports}}
        )
        status, body = await user("POST", PODS, pod())
        assert (status, body["message"]) == (500, prefix + 'no endpoints available for service "hook"')
        subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": hook.port}]}
        endpoints = {"metadata": {"name": "hook"}, "subsets": [subset]}
        await user("POST", "/api/v1/namespaces/tools/endpoints", endpoints)
        assert (await user("POST", PODS, pod()))[0] == 201
        assert (hook.queries[0]["host"], hook.queries[0]["path"]) == ("hook.tools.svc", "/mutate")


async def test_a_service_with_an_external_name_leads_there_at_the_webhooks_port() -> None:
    async with everything() as (user, hook):
        service = {"namespace": "tools", "name": "hook", "path": "/mutate", "port": hook.port}
        bundle = base64.b64encode(CERTIFICATES.authority_pem).decode()
        await register(user, webhook(1, clientConfig={"service": service, "caBundle": bundle}))
        await user("POST", "/api/v1/namespaces", {"metadata": {"name": "tools"}})
        spec = {"type": "ExternalName", "externalName": "localhost"}
        await user("POST", "/api/v1/namespaces/tools/services", {"metadata": {"name": "hook"}, "spec": spec})
        assert (await user("POST", PODS, pod()))[0] == 201
        assert (hook.queries[0]["host"], hook.queries[0]["path"]) == ("hook.tools.svc", "/mutate")


async def test_others_are_served_while_a_webhook_thinks_and_a_change_meanwhile_is_shown_to_it() -> None:
    async with everything() as (user, hook):
        await user("POST", PODS, pod())
        await register(user, webhook(hook.port, rules=[{**RULE, "operations": ["UPDATE"]}]))
        hook.pause = asyncio.Event()
        waiting = asyncio.create_task(user("PATCH", f"{PODS}/web", {"metadata": {"labels": {"x": "y"}}}, MERGE))
        async with asyncio.timeout(10):
            while not hook.asked:
                await asyncio.sleep(0)
        bound = {"metadata": {"name": "web"}, "target": {"name": "n1"}}
        assert (await user("POST", f"{PODS}/web/binding", bound))[0] == 201
        hook.pause.set()
        status, made = await waiting
        assert status == 200
        assert (made["metadata"]["labels"], made["spec"]["nodeName"]) == ({"x": "y"}, "n1")
        assert ["nodeName" in asked["object"]["spec"] for asked in hook.asked] == [False, True]


async def test_nothing_is_asked_and_nothing_costs_once_the_configuration_is_gone() -> None:
    async with emulator() as (server, user), serving(Hook()) as hook:
        assert server.cluster.admission is None
        await register(user, webhook(hook.port))
        assert server.cluster.admission is not None
        await user("DELETE", f"{MUTATING}/hooks")
        assert server.cluster.admission is None
        assert (await user("POST", PODS, pod()))[0] == 201
        assert hook.asked == []


async def test_configurations_come_back_after_a_restart(tmp_path: Any) -> None:
    async with serving(Hook()) as hook:
        for again in (False, True):
            async with running_server(data=tmp_path / "objects") as server:
                user = User(server.url)
                try:
                    if not again:
                        await register(user, webhook(hook.port))
                    assert (await user("POST", PODS, pod(f"p{again}".lower())))[0] == 201
                finally:
                    await user.session.close()
        assert len(hook.asked) == 2
