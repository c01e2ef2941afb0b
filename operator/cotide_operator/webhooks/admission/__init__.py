"""The mutating admission webhook: batch and gratis pods of other people's making ask for reclaimed capacity, too."""
