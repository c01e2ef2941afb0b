"""The latency guard: mixes, cached answers of the QoS model, and the nodes that a limit rules out."""
