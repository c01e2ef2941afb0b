"""The mutating admission webhook: it gives foreign batch and gratis pods requests for reclaimed capacity."""
