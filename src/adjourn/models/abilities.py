"""What a server can do with a request, since servers that speak the same protocol differ."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from adjourn.errors import UsageError

SystemRole = Literal["system", "developer", "user"]


class Abilities(Struct, frozen=True, kw_only=True):
    """What a model, or the server that it is on, accepts; the defaults are those of OpenAI's current models.

    tools: tool definitions and calls.
    json_schema: a JSON Schema that the answer must fit, enforced by the server.
    json_schema_with_tools: the same in a request that also has tools.
    images: images.
    images_in_tool_results: images in the result of a tool; otherwise they follow in a user message.
    null_content: `null` as the content of a message that has only tool calls; otherwise it is an empty text.
    system_role: the role of instructions; with "user" they are part of the first user message.
    """

    tools: bool = True
    json_schema: bool = True
    json_schema_with_tools: bool = True
    images: bool = True
    images_in_tool_results: bool = False
    null_content: bool = True
    system_role: SystemRole = "system"

    def __post_init__(self) -> None:
        for name in self.__struct_fields__[:-1]:
            if type(getattr(self, name)) is not bool:
                raise UsageError(f"Abilities({name}={getattr(self, name)!r}): give True or False.")
        if self.system_role not in get_args(SystemRole):
            raise UsageError(
                f"Abilities(system_role={self.system_role!r}): use one of: {', '.join(get_args(SystemRole))}."
            )
