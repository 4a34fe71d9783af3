"""The description of a route's body in ``/openapi.json``."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def described(path: str, body: type[BaseModel]) -> dict[str, Any]:
    """OpenAPI's ``requestBody`` of ``POST path``, a JSON object of these fields.

    The parts of the body stand beside it, to which references lead from the root of the whole description.
    """
    parts = f"#/paths/{path.replace('/', '~1')}/post/requestBody/content/application~1json/schema/$defs/"
    return {
        "content": {"application/json": {"schema": body.model_json_schema(ref_template=f"{parts}{{model}}")}}
    }
