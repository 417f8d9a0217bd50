"""The page that shows the API to people: static HTML, made from the OpenAPI document alone."""

from gateway.docs_page.rendering import STYLE, render_page

__all__ = ["STYLE", "render_page"]
