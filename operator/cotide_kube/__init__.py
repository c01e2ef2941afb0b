"""A small fast Kubernetes client: credentials, requests, reflector, bindings. It knows nothing of scheduling."""
