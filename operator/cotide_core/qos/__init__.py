"""The latency guard: mixes, cached answers of the QoS model, and which nodes a limit rules out."""
