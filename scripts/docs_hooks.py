"""Hooks of mkdocs: links that leave docs/, and the gRPC reference."""

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

GENERATED = "api/grpc.md"
_INTRODUCTION = """# gRPC

The contracts of `proto/modnorm/v1`. Every server offers reflection.
"""
_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#]+)[^)]*\)")


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the gRPC reference: the commented contracts themselves."""
    from mkdocs.structure.files import File  # noqa: PLC0415 (tests import this file without mkdocs)

    protos = sorted(Path("proto").rglob("*.proto"))
    parts = [f"## {path.name}\n\n```protobuf\n{path.read_text()}```\n" for path in protos]
    files.append(File.generated(config, GENERATED, content="\n".join([_INTRODUCTION, *parts])))
    return files


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    """Return the page with links to files outside docs/ replaced."""
    return name_outside_files(markdown, page.file.src_uri)


def name_outside_files(markdown: str, source: str) -> str:
    """Replace each link that leaves docs/ by its text and the file's path in the repository.

    Such links work on GitHub; the site does not contain their files.
    """

    def replace(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), link[2]))
        inside = target.startswith("docs/")
        return link[0] if inside else f"{link[1]} (`{target}`)"

    return _LINK.sub(replace, markdown)
