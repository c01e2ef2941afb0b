"""A small fast Kubernetes client: credentials, requests, reflector, bindings. It contains no scheduling."""
