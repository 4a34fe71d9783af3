#!/usr/bin/env python3
"""Fill the ${placeholders} of one model configuration by hand.

    fill_template.py -i model_repo/token2wav/config.pbtxt "max_batch:8,checkpoint_dir:/models/cosyvoice2"

A substitution is key:value; further colons belong to the value. A comma or backslash in a value is
written with a backslash before it (\\, and \\\\); a colon in a key as \\:. A placeholder without a value
and a value without a placeholder are errors, and nothing is written then.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from cosyvoice_runtime.settings.repository import TemplateError, fill, placeholders, require_used

SUBSTITUTION = re.compile(r"(?P<key>(?:\\.|[^\\:])+):(?P<value>(?:\\.|[^\\])*)", re.DOTALL)
BETWEEN_SUBSTITUTIONS = re.compile(r"((?:\\.|[^\\,])*)(?:,|$)", re.DOTALL)


def parse_substitutions(text: str) -> dict[str, str]:
    """``key:value,key:value`` to a mapping.

    Raises:
        TemplateError: a part has no colon, or a key comes twice.
    """
    values: dict[str, str] = {}
    for part in filter(None, BETWEEN_SUBSTITUTIONS.findall(text)):
        match = SUBSTITUTION.fullmatch(part)
        if match is None:
            raise TemplateError(f"substitution {part!r} is not key:value (a comma in a value is written \\,)")
        key, value = (re.sub(r"\\(.)", r"\1", side, flags=re.DOTALL) for side in match.groups())
        if key in values:
            raise TemplateError(f"substitution for ${{{key}}} is given twice")
        values[key] = value
    return values


def fill_file(path: Path, substitutions: str) -> str:
    """The text of a template with its placeholders filled."""
    values = parse_substitutions(substitutions)
    text = path.read_text(encoding="utf-8")
    require_used(placeholders(text), values, str(path))
    return fill(text, values, str(path))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file_path", type=Path, help="template to fill")
    parser.add_argument("substitutions", help="key:value,key:value,...")
    parser.add_argument("-i", "--in_place", action="store_true", help="write into the file, not to stdout")
    options = parser.parse_args(arguments)
    try:
        filled = fill_file(options.file_path, options.substitutions)
    except (OSError, TemplateError) as error:
        print(f"fill_template: {error}", file=sys.stderr)
        return 1
    if options.in_place:
        options.file_path.write_text(filled, encoding="utf-8")
    else:
        print(filled, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
