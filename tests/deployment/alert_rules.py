"""The alert rules of ``deploy/alerts.yml``."""

from __future__ import annotations

from typing import Any

import yaml
from compose_file import ROOT

FILE = ROOT / "deploy" / "alerts.yml"
GROUPS: list[dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))["groups"]
RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
