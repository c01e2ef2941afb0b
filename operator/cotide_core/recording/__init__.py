"""The ledger: what went into the engine and came out, one JSON line a cycle; its codec, and its replay."""
