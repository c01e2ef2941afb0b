"""The known fields of a pod: a server drops any other field, and reports it.

Called by `pod_rules` for every new pod. Only the levels where people mistype are listed (the spec, its containers,
their resources); deeper fields are kept unchanged.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from typing import Any, Final

from cotide_sim.apiserver.cluster import WriteOptions
from cotide_sim.apiserver.refusals import bad_request
from cotide_sim.apiserver.registry.resources import Json

_TOP: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_SPEC: Final = frozenset(
    {
        "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
        "enableServiceLinks", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers",
        "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os",
        "overhead", "preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims",
        "resources", "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "schedulingGroup",
        "securityContext", "serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace",
        "subdomain", "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes",
        "workloadRef",
    }
)  # fmt: skip
_CONTAINER: Final = frozenset(
    {
        "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name",
        "ports", "readinessProbe", "resizePolicy", "resources", "restartPolicy", "restartPolicyRules",
        "securityContext", "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy",
        "tty", "volumeDevices", "volumeMounts", "workingDir",
    }
)  # fmt: skip
_RESOURCES: Final = frozenset({"claims", "limits", "requests"})


def drop_unknown(pod: Json, options: WriteOptions) -> None:
    """Drop unknown fields of a pod, in place; warn of them, or refuse them on request.

    Raises
    ------
    Refusal
        400 that names the fields, when the requested validation is strict.
    """
    unknown: list[str] = []
    _drop(pod, _TOP, "", unknown)
    spec = pod.get("spec")
    if isinstance(spec, dict):
        _drop(spec, _SPEC, "spec.", unknown)
        for field in ("initContainers", "containers"):
            containers = spec.get(field)
            for index, container in enumerate(containers if isinstance(containers, list) else ()):
                prefix = f"spec.{field}[{index}]."
                _drop(container, _CONTAINER, prefix, unknown)
                if isinstance(container, dict):
                    _drop(container.get("resources"), _RESOURCES, f"{prefix}resources.", unknown)
    if unknown:
        report_unknown(unknown, options)


def _drop(value: Any, known: frozenset[str], prefix: str, unknown: list[str]) -> None:
    if isinstance(value, dict) and not value.keys() <= known:
        for field in [field for field in value if field not in known]:
            del value[field]
            unknown.append(prefix + field)


def report_unknown(paths: list[str], options: WriteOptions) -> None:
    """Refuse, warn of, or ignore unknown fields, by the request's `fieldValidation`."""
    warnings = [f'unknown field "{path}"' for path in paths]
    if options.strictness == "Strict":
        raise bad_request(f"strict decoding error: {', '.join(warnings)}")
    if options.strictness == "Warn":
        options.warnings += warnings
