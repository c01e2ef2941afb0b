"""What every section of the configuration file has in common.

Used by `settings` and its sections. Keys are written in camel case; one that is not there is an error, and so is a
number that is no finite one.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """A mapping of the configuration file; frozen once it is checked."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, allow_inf_nan=False
    )
