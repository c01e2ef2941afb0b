"""Commands that read a ledger: exactly again, and what shadow mode saw."""
