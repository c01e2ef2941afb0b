#!/usr/bin/env bash
# Makes a kind cluster, builds and loads the image, installs Cotide and applies the examples.
# Needs docker, kind and kubectl. Usage: deploy/kind.sh [up|down]   (KIND_CLUSTER names the cluster)
set -euo pipefail

cluster="${KIND_CLUSTER:-cotide}"
root="$(cd "$(dirname "$0")/.." && pwd)"
kubectl=(kubectl --context "kind-$cluster")

for tool in docker kind kubectl; do
  command -v "$tool" >/dev/null || { echo "deploy/kind.sh: $tool is not installed" >&2; exit 2; }
done
docker info >/dev/null 2>&1 || { echo "deploy/kind.sh: the Docker daemon can't be reached" >&2; exit 1; }

case "${1:-up}" in
  up) ;;
  down) exec kind delete cluster --name "$cluster" ;;
  *) echo "usage: deploy/kind.sh [up|down]" >&2; exit 2 ;;
esac

if ! kind get clusters 2>/dev/null | grep -qx "$cluster"; then
  kind create cluster --name "$cluster" --config "$root/deploy/overlays/kind/cluster.yaml" --wait 120s
fi
docker build --tag cotide:dev "$root"
kind load docker-image cotide:dev --name "$cluster"

# The definitions first: objects of a kind that is not served yet are refused.
"${kubectl[@]}" apply --server-side -k "$root/deploy/crds"
"${kubectl[@]}" wait --for=condition=Established crd/jobs.cotide.dev crd/workloads.cotide.dev --timeout=60s
"${kubectl[@]}" apply --server-side -k "$root/deploy/overlays/kind"
"${kubectl[@]}" --namespace cotide-system rollout status deployment/cotide-operator --timeout=180s
"${kubectl[@]}" apply -f "$root/examples"
echo "Look at it: kubectl --context kind-$cluster get cotide,pods -o wide   End it: deploy/kind.sh down" >&2
