"""The page that shows the API to people: static HTML, made from the OpenAPI document alone."""

from gateway.docs_page.rendering import SEARCH, STYLE, render_page

__all__ = ["SEARCH", "STYLE", "render_page"]
