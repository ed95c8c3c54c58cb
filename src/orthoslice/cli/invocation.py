"""How the command line was called, so that the call can be repeated."""

from __future__ import annotations

import typer


def invocation(context: typer.Context) -> list[str]:
    """The words of the running command: its arguments, and only those options that were given."""
    words = ["orthoslice", context.command.name or ""]
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        if parameter.param_type_name == "option":
            option = max(parameter.opts, key=len)
            words += [option] if value is True else [option, str(value)]
        else:
            words += [str(v) for v in (value if isinstance(value, (list, tuple)) else [value])]
    return words
