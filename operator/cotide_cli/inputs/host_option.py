"""The option for the host to listen on; used by every command that serves something."""

from __future__ import annotations

import click


def host(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return a host's name or address; a name that the system can't look up is refused before anything starts."""
    if value is None:
        return None
    try:
        value.encode("idna")
    except UnicodeError:
        raise click.BadParameter(f"{value[:80]!r} is no name or address of a host", ctx, param) from None
    return value
