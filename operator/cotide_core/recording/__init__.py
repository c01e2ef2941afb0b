"""The ledger: the inputs and outputs of the engine, one JSON line a cycle; its codec, and its replay."""
