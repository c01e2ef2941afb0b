"""The emulated world: API server, fake nodes, interference, traces, workloads, reports."""
