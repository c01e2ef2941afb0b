"""The extender: it answers kube-scheduler's requests about nodes."""
