"""The reference of the package's modules, from their sources: no framework needs to be there.

A module's names are those of its `__all__`. A collective is a method of the framework's object `collectives`
(`ciranda/_collectives`), under which its docstring and signature are found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import griffe

from ciranda._collectives.names import names_of


@dataclass(frozen=True)
class Module:
    """A module of the reference.

    Attributes:
        name: as it is imported.
        collectives: the class of its object `collectives`, for a framework whose functions come from the table.
        source: the module that has its docstring and its `__all__`, where that is another.
    """

    name: str
    collectives: str = ""
    source: str = ""


_COMPRESSED = "ciranda._collectives.compressed.CompressedCollectives"
MODULES = (
    Module("ciranda", "ciranda.numpy._numpy_collectives.NumpyCollectives", source="ciranda._api"),
    Module("ciranda.torch", _COMPRESSED),
    Module("ciranda.torch.distributed"),
    Module("ciranda.torch.elastic"),
    Module("ciranda.torch.nn"),
    Module("ciranda.jax", _COMPRESSED),
    Module("ciranda.tensorflow", _COMPRESSED),
    Module("ciranda.keras"),
    Module("ciranda.mxnet"),
    Module("ciranda.paddle", _COMPRESSED),
    Module("ciranda.data"),
    Module("ciranda.elastic"),
    Module("ciranda.errors"),
    Module("ciranda.launch"),
    Module("ciranda.metrics"),
    Module("ciranda.process_sets"),
)


def load(sources: Path) -> Any:
    """Read the package in `sources`."""
    loader = griffe.GriffeLoader(search_paths=[str(sources)], docstring_parser="google")
    package = loader.load("ciranda")
    loader.resolve_aliases(implicit=True, external=False)
    return package


class Reference:
    """The pages of the modules."""

    def __init__(self, package: Any) -> None:
        self._package = package
        self._described: dict[str, str] = {}  # path of the definition: the public name under which it is described
        self.without_docstring: list[str] = []

    def page(self, module: Module) -> str:
        """Return the page of a module."""
        own = self._at(module.name)
        described = own.docstring.value if own.docstring else ""
        names = dict(self._names(self._at(module.source or module.name)))
        entries, elsewhere = [], []
        for name, where in sorted(names.items(), key=_in_order):
            found = self._object(module, name, where)
            if found is None or found.is_module:
                continue
            is_method = found.parent.is_class
            public = self._described.setdefault(found.path, f"{module.name}.{name}")
            if is_method or public == f"{module.name}.{name}":
                entries.append(self._entry(module, name, found))
            else:
                elsewhere.append(f"{{py:obj}}`{name} <{public}>`")
        head = f"# `{module.name}`\n\n:::{{py:module}} {module.name}\n:::\n\n{_as_markdown(described)}\n\n"
        same = f"Described elsewhere, and the same here: {', '.join(elsewhere)}.\n\n" if elsewhere else ""
        return head + same + "\n".join(entries)

    def _at(self, path: str) -> Any:
        return self._package if path == "ciranda" else self._package[path.removeprefix("ciranda.")]

    def _names(self, module: Any) -> Iterator[tuple[str, Any]]:
        """The exported names, each with the module in which it is found."""
        if module.exports is None:  # the functions that are made from the table
            framework = module.path.split(".")[1]
            yield from ((name, module) for name in names_of(framework))
            return
        for export in module.exports:
            if isinstance(export, str):
                yield export, module
            else:  # *other.__all__
                path = export.canonical_path.removesuffix(".__all__")
                yield from self._names(self._at(path))

    def _entry(self, module: Module, name: str, found: Any) -> str:
        if found.is_attribute:
            return _directive("py:data", name, _docstring(found), 3)
        if not found.docstring:
            self.without_docstring.append(f"{module.name}.{name}")
        if found.is_class:
            return self._class(name, found)
        return _directive("py:function", name + _signature(found), _docstring(found), 3)

    def _object(self, module: Module, name: str, where: Any) -> Any:
        member = where.members.get(name)
        if member is None:  # bound to the object `collectives`
            return self._method(module, name)
        if member.is_alias:
            member = member.final_target
        if member.is_attribute and str(member.value or "").startswith(("collectives.", "of_tree(", "partial(")):
            return self._method(module, name)
        return member

    def _method(self, module: Module, name: str) -> Any:
        return self._at(module.collectives).all_members.get(name) if module.collectives else None

    def _class(self, name: str, found: Any) -> str:
        inner = []
        for method in found.members.values():
            if method.is_alias or method.name.startswith("_") or not method.docstring:
                continue
            if method.is_function:
                inner.append(_directive("py:method", method.name + _signature(method), _docstring(method), 3))
            elif method.is_attribute:
                inner.append(_directive("py:attribute", method.name, _docstring(method), 3))
        body = "\n".join([_docstring(found), *inner])
        constructor = found.members.get("__init__")
        return _directive("py:class", name + (_signature(constructor, False) if constructor else ""), body, 4)


def _in_order(item: tuple[str, Any]) -> tuple[str, str]:
    """Forms of a collective beside one another, constants and classes as their names fall."""
    return item[0].removeprefix("grouped_").lower(), item[0]


def _directive(kind: str, argument: str, body: str, n_colons: int) -> str:
    fence = ":" * n_colons
    return f"{fence}{{{kind}}} {argument}\n\n{body}\n{fence}\n"


_DEFAULT_OBJECT = re.compile(r"<[^>]+>")


def _signature(function: Any, with_result: bool = True) -> str:
    shown = []
    kinds = griffe.ParameterKind
    parameters = [each for each in function.parameters if each.name not in ("self", "cls")]
    has_star = False
    for index, each in enumerate(parameters):
        if each.kind is kinds.keyword_only and not has_star:
            shown.append("*")
            has_star = True
        has_star = has_star or each.kind is kinds.var_positional
        stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(each.kind, "")
        text = stars + each.name
        if each.annotation is not None:
            text += f": {each.annotation}"
        if each.default is not None and not stars:
            text += f" = {each.default}" if each.annotation is not None else f"={each.default}"
        shown.append(text)
        follows = parameters[index + 1] if index + 1 < len(parameters) else None
        if each.kind is kinds.positional_only and (follows is None or follows.kind is not kinds.positional_only):
            shown.append("/")
    result = f" -> {function.returns}" if with_result and function.returns is not None else ""
    return f"({', '.join(shown)}){result}".replace("\n", " ")


def _docstring(found: Any) -> str:
    if not found.docstring:
        return ""
    parts = []
    for section in found.docstring.parsed:
        kind = section.kind.value
        if kind == "text":
            parts.append(_as_markdown(section.value))
        elif kind == "admonition":
            parts.append(f"**{section.title}**\n\n{_as_markdown(section.value.description)}")
        elif kind in ("parameters", "attributes", "other parameters", "raises", "returns", "yields"):
            heads = {"parameters": "Arguments", "other parameters": "Further arguments"}
            items = "\n".join(_item(kind, each) for each in section.value)
            parts.append(f"**{heads.get(kind, kind.capitalize())}**\n\n{items}")
        elif kind == "examples":
            parts.append("**Examples**\n\n" + "\n\n".join(_as_markdown(text) for _, text in section.value))
        else:
            raise ValueError(f"{found.path}: a docstring with a section {kind}, which the site does not know")
    return "\n\n".join(parts) + "\n"


def _item(kind: str, each: Any) -> str:
    name = str(each.annotation) if kind == "raises" else each.name
    text = _as_markdown(each.description).replace("\n", "\n  ")
    return f"- `{name}`: {text}" if name else f"- {text}"


_LITERAL = re.compile(r"``([^`]+)``")


def _as_markdown(text: str) -> str:
    """Docstrings are Markdown already, but for code in two backticks and what looks like HTML."""
    return _LITERAL.sub(r"`\1`", text)
