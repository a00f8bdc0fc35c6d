"""The ``slot-machine`` directive: what may follow what, read from the machine when the manual is built."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from twisted_router.core.lifecycle import new_life
from twisted_router.core.places import State


def moves() -> dict[str, dict[str, list[str]]]:
    """State -> next state -> what leads there, in the order in which states are declared."""
    order = [state.value for state in State]
    found: dict[str, dict[str, list[str]]] = {name: defaultdict(list) for name in order}
    for state, event, following, _ in new_life.__automat_automaton__.allTransitions():
        if event != "state":
            found[state.name][following.name].append(event)
    return {
        name: {to: sorted(found[name][to]) for to in sorted(found[name], key=order.index)} for name in order
    }


def table() -> str:
    """The moves in reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 1 3 1", ""]
    lines += ["   * - State", "     - Told", "     - Becomes"]
    for state, following in moves().items():
        for to, events in following.items():
            told = ", ".join(event.replace("_", " ") for event in events)
            lines += [f"   * - {state}", f"     - {told}", f"     - {to if to != state else '(stays)'}"]
    return "\n".join(lines)


def picture(dot: str) -> str:
    """The moves as SVG, drawn by Graphviz."""
    lines = [
        "digraph slot {",
        "rankdir=LR; node [shape=box, style=rounded, fontname=sans]; edge [fontname=sans];",
    ]
    for state, following in moves().items():
        for to, events in following.items():
            label = "\\n".join(event.replace("_", " ") for event in events)
            lines.append(f'"{state}" -> "{to}" [label="{label}", fontsize=10];')
    drawn = subprocess.run(  # noqa: S603 - the program was found on the path
        [dot, "-Tsvg"], input="\n".join([*lines, "}"]), capture_output=True, text=True, check=True
    )
    return drawn.stdout[drawn.stdout.index("<svg") :]


class SlotMachine(SphinxDirective):
    """A picture where Graphviz is at hand, and the table in any case."""

    def run(self) -> list[nodes.Node]:
        """Render."""
        found = self.parse_text_to_nodes(table())
        dot = shutil.which("dot")
        return found if dot is None else [nodes.raw("", picture(dot), format="html"), *found]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Announce the directive to Sphinx."""
    app.add_directive("slot-machine", SlotMachine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
