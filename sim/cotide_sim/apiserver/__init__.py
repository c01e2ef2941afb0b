"""An embedded Kubernetes API server: a real HTTP API without a cluster behind it."""
