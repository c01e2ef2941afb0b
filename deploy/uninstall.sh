#!/usr/bin/env bash
# Takes Cotide off a cluster without trace: docs/install.md. Needs kubectl with an administrator's rights, and works
# whether or not the operator still runs. Running it twice does no harm.
# Usage: deploy/uninstall.sh [--yes] [--scheduler-name NAME]...   (without --yes it only says what it would do; KUBECONFIG
# names the cluster; NAME: one of schedulerNames, cotide if none is given)
set -euo pipefail

usage() { echo "usage: deploy/uninstall.sh [--yes] [--scheduler-name NAME]..." >&2; exit 2; }
apply=no
schedulers=()
while [ $# -gt 0 ]; do
  case "$1" in
    --yes) apply=yes; shift ;;
    --scheduler-name) [ -n "${2:-}" ] || usage; schedulers+=("$2"); shift 2 ;;
    *) usage ;;
  esac
done
[ ${#schedulers[@]} -gt 0 ] || schedulers=(cotide)
command -v kubectl >/dev/null || { echo "deploy/uninstall.sh: kubectl is not installed" >&2; exit 2; }
kubectl version >/dev/null 2>&1 || { echo "deploy/uninstall.sh: the cluster can't be reached: kubectl version" >&2; exit 1; }

namespace=cotide-system
kinds=(jobs.cotide.dev workloads.cotide.dev)
classes=(cotide-online cotide-batch cotide-gratis)

served() { kubectl get crd "$1" --ignore-not-found -o name | grep -q .; }
count() { sed '/^$/d' | wc -l | tr -d ' '; }

# Names of nodes that carry anything of ours.
marked_nodes() {
  kubectl get nodes -o go-template='{{range .items}}{{$m := ""}}
    {{- range $k, $v := .metadata.annotations}}{{if or (eq $k "cotide.dev/forecast") (eq $k "cotide.dev/cordoned-until") (eq $k "cotide.dev/consolidation") (eq $k "cotide.dev/consolidation-record") (eq $k "cotide.dev/consolidation-watch")}}{{$m = "y"}}{{end}}{{end}}
    {{- range $k, $v := .status.capacity}}{{if or (eq $k "cotide.dev/reclaimed-cpu") (eq $k "cotide.dev/reclaimed-memory")}}{{$m = "y"}}{{end}}{{end}}
    {{- range .status.conditions}}{{if eq .type "cotide.dev/ForecastTrusted"}}{{$m = "y"}}{{end}}{{end}}
    {{- if $m}}{{.metadata.name}}{{"\n"}}{{end}}{{end}}'
}

# Names of nodes that consolidation has cordoned, "mine" or "theirs": theirs are those of a person who ran
# cotide consolidate --apply, and those whose machines were told to go. They stay cordoned.
held_nodes() {
  kubectl get nodes -o go-template='{{range .items}}{{$n := .metadata.name}}{{$a := .metadata.annotations}}
    {{- with $a}}{{with index . "cotide.dev/consolidation"}}
      {{- if and (ne . "stopping") (or (index $a "cotide.dev/consolidation-record") (index $a "cotide.dev/consolidation-watch"))}}{{$n}} mine{{else}}{{$n}} theirs{{end}}{{"\n"}}
    {{- end}}{{end}}{{end}}'
}

# "namespace name what" for each label and annotation that the operator wrote on a pod. What a user wrote has another manager.
pod_notes() {
  kubectl get pods --all-namespaces --show-managed-fields -o go-template='{{range .items}}{{$p := .metadata}}
    {{- range .metadata.managedFields}}{{if and (eq .manager "cotide") .fieldsV1}}{{with index .fieldsV1 "f:metadata"}}
      {{- with index . "f:annotations"}}{{range $k, $v := .}}{{if eq $k "f:cotide.dev/decision"}}{{$p.namespace}} {{$p.name}} annotate cotide.dev/decision-{{"\n"}}{{end}}{{end}}{{end}}
      {{- with index . "f:labels"}}{{range $k, $v := .}}{{if eq $k "f:cotide.dev/class"}}{{$p.namespace}} {{$p.name}} label cotide.dev/class-{{"\n"}}{{end}}
        {{- if eq $k "f:cotide.dev/workload"}}{{$p.namespace}} {{$p.name}} label cotide.dev/workload-{{"\n"}}{{end}}{{end}}{{end}}
    {{- end}}{{end}}{{end}}{{end}}' | sort -u
}

# "namespace name" of pods of Jobs that our finalizer keeps: nobody counts their ends any more.
kept_pods() {
  kubectl get pods --all-namespaces -o go-template='{{range .items}}{{$p := .metadata}}
    {{- range .metadata.finalizers}}{{if eq . "cotide.dev/job-tracking"}}{{$p.namespace}} {{$p.name}}{{"\n"}}{{end}}{{end}}{{end}}'
}

# "kind namespace/name class" of what would make pods of a PriorityClass of ours.
class_users() {
  kubectl get deployments,statefulsets,daemonsets,replicasets,jobs.batch --all-namespaces -o go-template='{{range .items}}
    {{- if .spec.template.spec.priorityClassName}}{{.kind}} {{.metadata.namespace}}/{{.metadata.name}} {{.spec.template.spec.priorityClassName}}{{"\n"}}{{end}}{{end}}' \
    | grep -v " $namespace/" | grep -E ' cotide-(online|batch|gratis)$' || true
}

say() { echo "deploy/uninstall.sh: $*" >&2; }

say "the cluster of context $(kubectl config current-context 2>/dev/null || echo '(none)')"
say "namespace $namespace with all that is in it: the operator, its configuration, model files kept there, its Lease"
for kind in "${kinds[@]}"; do
  if served "$kind"; then
    say "$(kubectl get "$kind" --all-namespaces -o name | count) $kind and the pods that were made for them; the definition"
  fi
done
say "$(marked_nodes | count) nodes with reclaimed resources, condition or annotations"
say "$(held_nodes | grep -c ' mine$' || true) nodes that consolidation has cordoned are opened"
say "$(kept_pods | count) finalizers of pods of Jobs"
say "$(pod_notes | count) labels and annotations that the operator wrote on pods that stay"
say "ClusterRoles, PriorityClasses and the webhook configuration named cotide-*"
if [ "$apply" = no ]; then
  say "nothing was changed; run it again with --yes"
  exit 0
fi

# Who changes pods while they are made goes first, then who writes, then what was written.
kubectl delete mutatingwebhookconfiguration cotide-admission --ignore-not-found
kubectl --namespace "$namespace" delete deployment cotide-operator cotide-assisted-scheduler cotide-shadow \
  --ignore-not-found --cascade=foreground --timeout=180s
# Told to end, the agents of the nodes put control groups back as kubelets made them; their namespace goes after them.
kubectl --namespace cotide-node-agent delete daemonset cotide-node-agent --ignore-not-found --cascade=foreground --timeout=180s
kubectl delete namespace cotide-node-agent --ignore-not-found --timeout=180s
kept_pods | while read -r space pod; do
  # A pod may go meanwhile; and what others wait for on it is theirs to take off.
  kubectl --namespace "$space" patch pod "$pod" --type=strategic -p \
    '{"metadata":{"$deleteFromPrimitiveList/finalizers":["cotide.dev/job-tracking"]}}' </dev/null \
    || kubectl --namespace "$space" get pod "$pod" --ignore-not-found </dev/null
done
# The garbage collector knows the owner of a pod only while the owner's kind is served: objects first, definitions after.
for kind in "${kinds[@]}"; do
  if served "$kind"; then
    kubectl delete "$kind" --all --all-namespaces --cascade=foreground --timeout=300s
    kubectl delete crd "$kind" --timeout=60s
  fi
done
stay="$(held_nodes | sed -n 's/ theirs$//p')"
[ -z "$stay" ] || say "nodes that stay cordoned, since a person has freed them or their machines were told to go: $(tr '\n' ' ' <<<"$stay")"
held_nodes | sed -n 's/ mine$//p' | while read -r node; do
  kubectl uncordon "$node" </dev/null
done
marked_nodes | while read -r node; do
  kubectl patch node "$node" --subresource=status --type=strategic -p \
    '{"metadata":{"annotations":{"cotide.dev/forecast":null,"cotide.dev/cordoned-until":null,"cotide.dev/consolidation":null,"cotide.dev/consolidation-record":null,"cotide.dev/consolidation-watch":null}},"status":{"capacity":{"cotide.dev/reclaimed-cpu":null,"cotide.dev/reclaimed-memory":null},"allocatable":{"cotide.dev/reclaimed-cpu":null,"cotide.dev/reclaimed-memory":null},"conditions":[{"$patch":"delete","type":"cotide.dev/ForecastTrusted"}]}}' </dev/null
done
pod_notes | while read -r space pod verb what; do
  # A pod may end meanwhile: then there is nothing left to take away.
  kubectl --namespace "$space" "$verb" pod "$pod" "$what" </dev/null || kubectl --namespace "$space" get pod "$pod" --ignore-not-found </dev/null
done
kubectl delete clusterrolebinding,clusterrole cotide-operator cotide-admission cotide-shadow cotide-node-agent \
  cotide-consolidation cotide-kueue cotide-provisioning cotide-provisioning-scales-down --ignore-not-found
# Of a kube-scheduler of one's own (deploy/extender/second-scheduler), whose roles are the cluster's.
kubectl delete clusterrolebinding cotide-assisted-scheduler cotide-assisted-scheduler-volumes --ignore-not-found
kubectl --namespace kube-system delete rolebinding cotide-assisted-scheduler-authentication --ignore-not-found
kubectl delete clusterrole cotide-edit cotide-view cotide-debug --ignore-not-found
users="$(class_users)"
for class in "${classes[@]}"; do
  if grep -q " $class\$" <<<"$users"; then
    # Without its class none of their pods could be made again.
    say "PriorityClass $class stays, these name it: $(grep " $class\$" <<<"$users" | cut -d' ' -f1-2 | tr '\n' ';')"
  else
    kubectl delete priorityclass "$class" --ignore-not-found
  fi
done
kubectl delete namespace "$namespace" --ignore-not-found --timeout=180s
for scheduler in "${schedulers[@]}"; do
  waiting="$(kubectl get pods --all-namespaces --field-selector "spec.nodeName=,spec.schedulerName=$scheduler" -o name | count)"
  [ "$waiting" = 0 ] || say "$waiting pods wait for schedulerName $scheduler, which nobody serves now: make them anew with another"
done
labelled="$(kubectl get namespaces -l cotide.dev/max-class -o name; kubectl get namespaces -l cotide.dev/reclaim -o name)"
[ -z "$labelled" ] || say "your own labels cotide.dev/max-class and cotide.dev/reclaim stay on: $(tr '\n' ' ' <<<"$labelled")"
say "done"
