"""``/docs``: the OpenAPI document as a page. No script, nothing fetched from anywhere."""

import base64
import hashlib
import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from jinja2 import DictLoader, Environment

from service.access.guard import needs
from service.auth.scopes import Scope
from service.prefix import base_of

router = APIRouter(include_in_schema=False)

STYLE = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
a{color:#0b57d0}code,pre,summary{font-family:ui-monospace,monospace}pre{background:#f4f5f7;padding:1rem;overflow:auto}
summary{cursor:pointer;padding:.5rem 0;border-bottom:1px solid #d8dbe0}table{border-collapse:collapse;margin:.5rem 0}
td,th{text-align:left;padding:.2rem 1rem .2rem 0;vertical-align:top}.verb{display:inline-block;width:4.5rem;font-weight:700}
@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#15181c}pre{background:#22262c}a{color:#8ab4f8}}
"""
PAGE = """\
<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{{ title }} API</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{{ style|safe }}</style></head><body>
<main><h1>{{ title }} API {{ version }}</h1>
<p>{{ description }}</p><p>The same for programs: <a href="{{ base }}/openapi.json">/openapi.json</a>.</p>
{% for tag, operations in tags.items() %}<h2>{{ tag }}</h2>
{% for op in operations %}<details><summary><span class="verb">{{ op.method }}</span>{{ op.path }}</summary>
<p>{{ op.description }}</p>
{% if op.parameters %}<table><tr><th scope="col">parameter</th><th scope="col">in</th><th scope="col"></th></tr>
{% for p in op.parameters %}<tr><td><code>{{ p.name }}</code></td><td>{{ p.in }}</td><td>{{ p.description }}</td></tr>
{% endfor %}</table>{% endif %}
{% if op.body %}<p>Body:{% for name in op.body %} <a href="#{{ name }}">{{ name }}</a>{% endfor %}</p>{% endif %}
<table><tr><th scope="col">answer</th><th scope="col"></th></tr>
{% for status, text in op.responses.items() %}<tr><td>{{ status }}</td><td>{{ text }}</td></tr>
{% endfor %}</table></details>
{% endfor %}{% endfor %}
<h2>Schemas</h2>
{% for name, schema in schemas.items() %}<details id="{{ name }}"><summary>{{ name }}</summary><pre>{{ schema }}</pre></details>
{% endfor %}</main></body></html>
"""
_environment = Environment(loader=DictLoader({"docs": PAGE}), autoescape=True)
_style_hash = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_style_hash}'; frame-ancestors 'none'"


@router.get("/docs", dependencies=[needs(Scope.READ)])
async def docs(request: Request) -> HTMLResponse:
    """Every route, its parameters and its answers."""
    document = request.app.openapi()
    schemas = document["components"]["schemas"]
    page = _environment.get_template("docs").render(
        base=base_of(request),
        style=STYLE,
        title=document["info"]["title"],
        version=document["info"]["version"],
        description=document["info"].get("description", ""),
        tags=_by_tag(document["paths"]),
        schemas={name: json.dumps(schema, indent=2) for name, schema in sorted(schemas.items())},
    )
    return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})


def _by_tag(paths: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    tags: dict[str, list[dict[str, Any]]] = {}
    for path, operations in paths.items():
        for method, operation in operations.items():
            tags.setdefault(operation.get("tags", ["other"])[0], []).append(
                {
                    "method": method.upper(),
                    "path": path,
                    "description": operation.get("description", operation.get("summary", "")),
                    "parameters": operation.get("parameters", []),
                    "body": _bodies(operation.get("requestBody", {})),
                    "responses": {
                        status: answer.get("description", "")
                        for status, answer in operation["responses"].items()
                    },
                }
            )
    return tags


def _bodies(body: dict[str, Any]) -> list[str]:
    """The names of the schemas that a body may have."""
    schema = body.get("content", {}).get("application/json", {}).get("schema", {})
    refs = [each.get("$ref", "") for each in schema.get("anyOf", [schema])]
    return [ref.rpartition("/")[2] for ref in refs if ref]
