"""The operator's HTTPS answers: to the API server about new pods, and to kube-scheduler about nodes."""
