"""Who asks the operator over HTTPS: the API server about new pods, and kube-scheduler about nodes."""
