"""What a user may name as the host to listen on; used by every command that serves something."""

from __future__ import annotations

import click


def host(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return a host's name or address; what the system could not even look up is told before anything starts."""
    if value is None:
        return None
    try:
        value.encode("idna")
    except UnicodeError:
        raise click.BadParameter(f"{value[:80]!r} is no name or address of a host", ctx, param) from None
    return value
