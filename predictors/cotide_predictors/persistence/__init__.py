"""Model files: manifests, payloads under their digests, and trees read from UBJ."""
