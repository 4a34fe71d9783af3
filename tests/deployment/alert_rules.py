"""The alert rules of ``deploy/alerts.yml``."""

from __future__ import annotations

from typing import Any

import yaml
from compose_file import ROOT

FILE = ROOT / "deploy" / "alerts.yml"
GROUPS: list[dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))["groups"]
ALL: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in ALL if "alert" in rule}
RECORDED: dict[str, str] = {rule["record"]: rule["expr"] for rule in ALL if "record" in rule}
"""Expressions by the name under which their values are kept."""
