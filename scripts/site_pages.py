"""Puts the pages that are outside of docs/ into the site, with links that work there."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.site_links import ROOT, adapted, copied


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for place, origin in copied().items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / origin)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri
    return adapted(markdown, copied().get(place, f"docs/{place}"))
