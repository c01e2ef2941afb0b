"""The extender: kube-scheduler asks Cotide about nodes."""
