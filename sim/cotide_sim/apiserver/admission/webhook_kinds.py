"""The checks and the defaults of a webhook configuration.

Called through `kind_rules` for MutatingWebhookConfiguration and ValidatingWebhookConfiguration. Invariant: `webhooks`
can read an accepted configuration without further checks. A feature that this emulator does not support
(`matchConditions`, which are CEL) is refused, never ignored.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from cotide_sim.apiserver.cluster import Write
from cotide_sim.apiserver.refusals import Cause
from cotide_sim.apiserver.registry.resources import Json

TIMEOUT_SECONDS: Final = 10
"""The API's default; 30 s is its maximum."""
_OPERATIONS: Final = ("*", "CREATE", "UPDATE", "DELETE", "CONNECT")
_NAME: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?){2,}$")
_SELECTOR_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


def default_webhooks(write: Write) -> None:
    """Set the defaults of a real server."""
    mutating = write.resource.kind == "MutatingWebhookConfiguration"
    for hook in write.obj.get("webhooks") or ():
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        hook.setdefault("timeoutSeconds", TIMEOUT_SECONDS)
        if mutating:
            hook.setdefault("reinvocationPolicy", "Never")
        service = (hook.get("clientConfig") or {}).get("service")
        if service:
            service.setdefault("port", 443)
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")


def check_webhooks(write: Write) -> list[Cause]:
    """Refuse an incomplete or contradictory configuration, or one that needs an unsupported feature."""
    causes: list[Cause] = []
    names: set[str] = set()
    for index, hook in enumerate(write.obj.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        name = hook.get("name") or ""
        if not _NAME.match(name):
            causes.append(
                Cause(f"{path}.name", f'Invalid value: "{name}": should be a domain with at least three segments '
                      "separated by dots")
            )  # fmt: skip
        elif name in names:
            causes.append(Cause(f"{path}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate"))
        names.add(name)
        causes += _check_hook(hook, path)
    return causes


def _check_hook(hook: Json, path: str) -> list[Cause]:
    causes = _one_of(hook, path, "failurePolicy", ("Fail", "Ignore"))
    causes += _one_of(hook, path, "matchPolicy", ("Equivalent", "Exact"))
    causes += _one_of(hook, path, "sideEffects", ("None", "NoneOnDryRun"))
    if "reinvocationPolicy" in hook:
        causes += _one_of(hook, path, "reinvocationPolicy", ("Never", "IfNeeded"))
    versions = hook.get("admissionReviewVersions") or []
    if not versions:
        text = "Required value: must specify one of v1, v1beta1"
        causes.append(Cause(f"{path}.admissionReviewVersions", text, "FieldValueRequired"))
    elif "v1" not in versions:
        text = f"Invalid value: {versions!r}: must include at least one of v1; this server sends no other"
        causes.append(Cause(f"{path}.admissionReviewVersions", text))
    if not 1 <= hook["timeoutSeconds"] <= 30:
        text = f"Invalid value: {hook['timeoutSeconds']}: the timeout value must be between 1 and 30 seconds"
        causes.append(Cause(f"{path}.timeoutSeconds", text))
    if hook.get("matchConditions"):
        text = "Forbidden: not known to this emulator; select by rules, namespaceSelector and objectSelector"
        causes.append(Cause(f"{path}.matchConditions", text, "FieldValueForbidden"))
    for field in ("namespaceSelector", "objectSelector"):
        causes += _check_selector(hook.get(field) or {}, f"{path}.{field}")
    for index, rule in enumerate(hook.get("rules") or ()):
        causes += _check_rule(rule, f"{path}.rules[{index}]")
    return causes + _check_client(hook.get("clientConfig") or {}, f"{path}.clientConfig")


def _one_of(value: Json, path: str, field: str, supported: tuple[str, ...]) -> list[Cause]:
    given = value.get(field)
    if given in supported:
        return []
    words = ", ".join(f'"{value}"' for value in supported)
    if given is None:
        text = f"Required value: must specify one of {', '.join(supported)}"
        return [Cause(f"{path}.{field}", text, "FieldValueRequired")]
    text = f'Unsupported value: "{given}": supported values: {words}'
    return [Cause(f"{path}.{field}", text, "FieldValueNotSupported")]


def _check_selector(selector: Json, path: str) -> list[Cause]:
    return [
        Cause(
            f"{path}.matchExpressions[{index}].operator",
            f'Invalid value: "{term.get("operator")}": not a valid selector operator',
        )
        for index, term in enumerate(selector.get("matchExpressions") or ())
        if term.get("operator") not in _SELECTOR_OPERATORS
    ]


def _check_rule(rule: Json, path: str) -> list[Cause]:
    causes = [
        Cause(f"{path}.{field}", "Required value", "FieldValueRequired")
        for field in ("operations", "apiGroups", "apiVersions", "resources")
        if not rule.get(field)
    ]
    for index, operation in enumerate(rule.get("operations") or ()):
        if operation not in _OPERATIONS:
            words = ", ".join(f'"{operation}"' for operation in _OPERATIONS)
            text = f'Unsupported value: "{operation}": supported values: {words}'
            causes.append(Cause(f"{path}.operations[{index}]", text, "FieldValueNotSupported"))
    return causes + _one_of(rule, path, "scope", ("*", "Cluster", "Namespaced"))


def _check_client(client: Json, path: str) -> list[Cause]:
    url, service = client.get("url"), client.get("service")
    if (url is None) is (service is None):
        return [Cause(path, "Required value: exactly one of url or service is required", "FieldValueRequired")]
    if service is not None:
        causes = [
            Cause(f"{path}.service.{field}", f"Required value: service {field} is required", "FieldValueRequired")
            for field in ("namespace", "name")
            if not service.get(field)
        ]
        if not (service.get("path") or "/").startswith("/"):
            causes.append(Cause(f"{path}.service.path", f"Invalid value: \"{service['path']}\": must start with a '/'"))
        if not 1 <= service["port"] <= 65_535:
            causes.append(Cause(f"{path}.service.port", f"Invalid value: {service['port']}: port is not valid: must "
                                "be between 1 and 65535, inclusive"))  # fmt: skip
        return causes
    return _check_url(str(url), f"{path}.url")


def _check_url(url: str, path: str) -> list[Cause]:
    try:
        parts: Any = urlsplit(url)
        host = parts.hostname
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError as error:
        return [Cause(path, f'Invalid value: "{url}": url must be a valid URL: {error}')]
    if parts.scheme != "https":
        return [Cause(path, f"Invalid value: \"{parts.scheme}\": 'https' is the only allowed URL scheme; desired "
                            "format: https://host[/path]")]  # fmt: skip
    if not host:
        return [Cause(path, 'Invalid value: "": host must be specified; desired format: https://host[/path]')]
    for what, found in (
        ("user information is", parts.username),
        ("fragments are", parts.fragment),
        ("query parameters are", parts.query),
    ):
        if found:
            return [Cause(path, f'Invalid value: "{found}": {what} not permitted in the URL')]
    return []
