"""The page of the service, and its reference: each one file that needs nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any


@cache
def html() -> str:
    """Return the page."""
    return (files("dualmix.serve") / "page.html").read_text(encoding="utf-8")


def policy(text: str) -> dict[str, str]:
    """Return headers that let a page run its own script, and nothing else, from nowhere else."""

    def hashes(tag: str) -> str:
        inner = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digests = [hashlib.sha256(part.encode()).digest() for part in inner]
        return " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in digests) or "'none'"

    rules = (
        "default-src 'none'",
        f"script-src {hashes('script')}",
        f"style-src {hashes('style')}",
        "img-src data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return {"content-security-policy": "; ".join(rules)}


def reference(openapi: dict[str, Any]) -> str:
    """Return the endpoints as a page, from their OpenAPI description."""
    (style,) = re.findall(r"<style>.*?</style>", html(), re.DOTALL)
    parts = []
    for path, methods in openapi["paths"].items():
        for method, one in methods.items():
            parts.append(_endpoint(path, method, one))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dualmix: endpoints'
        '</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{style}</head><body><main><h1>Endpoints</h1><p>{escape(openapi['info']['description'])} "
        'The same for programs: <a href="openapi.json">openapi.json</a>. '
        '<a href="./">The page of the learner</a>.</p>' + "".join(parts) + "</main></body></html>"
    )


def _endpoint(path: str, method: str, one: dict[str, Any]) -> str:
    rows = [
        f"<tr><th scope=row><code>{escape(given['name'])}</code></th>"
        f"<td class=left>{escape(given.get('description', ''))}</td></tr>"
        for given in one.get("parameters", ())
    ]
    if kinds := one.get("requestBody", {}).get("content"):
        body = ", ".join(f"<code>{escape(kind)}</code>" for kind in kinds)
        rows.append(f"<tr><th scope=row>body</th><td class=left>{body}</td></tr>")
    rows += [
        f"<tr><th scope=row>{escape(status)}</th>"
        f"<td class=left>{escape(said.get('description', ''))}</td></tr>"
        for status, said in sorted(one["responses"].items())
    ]
    return (
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2>"
        f"<p>{escape(one.get('summary', ''))}. {escape(one.get('description', ''))}</p>"
        f"<div class=scroll><table>{''.join(rows)}</table></div></section>"
    )
