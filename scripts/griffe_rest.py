"""Lets mkdocstrings read docstrings in PyG's style."""

from typing import Any

import griffe

from scripts.rest import to_markdown


class RestDocstrings(griffe.Extension):
    """Turns each docstring into Markdown before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
