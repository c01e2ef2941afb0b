"""Fake nodes: kubelets without containers that live on any API server, real or emulated."""
