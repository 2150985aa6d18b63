"""An app of many commands that builds only the command that is called.

typer reads the parameters of every command of an app at each start; for the commands of this package that takes as long
as the import of typer itself.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info, get_command_name
from typer.models import CommandInfo

if TYPE_CHECKING:
    from typer.models import CommandFunctionType


LONGEST_SUMMARY = 200
"""Characters of a command's first sentence; longer ones are wrapped, and not cut."""


class OnDemandTyper(typer.Typer):
    """A `typer.Typer` that builds a command when it is called, and all of them for the app's own help.

    It needs a callback: by that typer knows it as a group of commands.
    """

    def __init__(
        self,
        groups: Mapping[str, Collection[str]] | None = None,
        epilog: Callable[[str], str | None] = lambda _name: None,
        **options: Any,
    ) -> None:
        """Takes the options of `typer.Typer`.

        Args:
            groups: Names of commands under the titles of their groups in the app's help.
            epilog: The end of the help of a command, by its name.
            options: Those of `typer.Typer`.
        """
        sections = groups or {}
        commands = self._commands = _Commands(self)

        class Group(TyperGroup):
            def __init__(self, **settings: Any) -> None:
                super().__init__(**settings)
                self.commands = commands

            def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
                """`help` and `help COMMAND` are the help of the app and of the command."""
                return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

            def format_commands(self, ctx: Any, formatter: Any) -> None:
                """The commands in their groups, each with its whole first sentence."""
                known = {name for group in sections.values() for name in group}
                others = [name for name in self.commands if name not in known]
                for title, names in {**sections, "Others": others}.items():
                    here = {name: self.commands[name] for name in names if name in self.commands}
                    rows = [(name, found.get_short_help_str(limit=LONGEST_SUMMARY)) for name, found in here.items()]
                    if rows:
                        with formatter.section(title if known else "Commands"):
                            formatter.write_dl(rows)

        self._epilog = epilog
        super().__init__(cls=Group, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Add a command; see `typer.Typer.command`."""

        def add(function: CommandFunctionType) -> CommandFunctionType:
            named = name or get_command_name(function.__name__)
            super(OnDemandTyper, self).command(name, **{"epilog": self._epilog(named), **options})(function)
            # typer would build it if it were still among those that are registered.
            self._commands[named] = self.registered_commands.pop()
            return function

        return add


class _Commands(UserDict[str, Any]):
    """Commands by name. One is built when it is first read."""

    def __init__(self, app: typer.Typer) -> None:
        super().__init__()
        self._app = app

    def __getitem__(self, name: str) -> Any:
        found = self.data[name]
        if isinstance(found, CommandInfo):
            app = self._app
            found = self.data[name] = get_command_from_info(
                found, pretty_exceptions_short=app.pretty_exceptions_short, rich_markup_mode=app.rich_markup_mode
            )
        return found
