"""The sentence that is spoken in place of a block of code."""

from __future__ import annotations

import re

_SENTENCES = {
    "en": ("Here is code in {}.", "Here is code."),
    "zh": ("以下是{}代码。", "以下是代码。"),
    "ja": ("以下は{}のコードです。", "以下はコードです。"),
    "ko": ("다음은 {} 코드입니다.", "다음은 코드입니다."),
    "de": ("Hier folgt Code in {}.", "Hier folgt Code."),
    "fr": ("Voici du code en {}.", "Voici du code."),
    "es": ("Aquí hay código en {}.", "Aquí hay código."),
    "it": ("Ecco del codice in {}.", "Ecco del codice."),
    "pt": ("Segue um código em {}.", "Segue um código."),
    "ru": ("Далее следует код на {}.", "Далее следует код."),
}
"""Sentences with the name of a programming language and without one, by the language they are in."""
_NAMES = {
    "Assembly": "asm assembly nasm",
    "Bash": "bash sh shell zsh console shell-session",
    "C": "c h",
    "C Sharp": "csharp c# cs",
    "C plus plus": "cpp c++ cc cxx hpp",
    "CSS": "css scss less",
    "CUDA": "cuda cu",
    "Dart": "dart",
    "Elixir": "elixir ex",
    "Fortran": "fortran f90",
    "Go": "go golang",
    "GraphQL": "graphql",
    "HTML": "html xhtml",
    "Haskell": "haskell hs",
    "JSON": "json json5 jsonc jsonl",
    "Java": "java",
    "JavaScript": "javascript js jsx mjs node",
    "Julia": "julia jl",
    "Kotlin": "kotlin kt",
    "LaTeX": "latex tex",
    "Lua": "lua",
    "Markdown": "markdown md",
    "Matlab": "matlab octave",
    "PHP": "php",
    "Perl": "perl pl",
    "PowerShell": "powershell ps1 pwsh",
    "Python": "python py python3 pycon ipython",
    "R": "r",
    "Ruby": "ruby rb",
    "Rust": "rust rs",
    "SQL": "sql mysql postgresql plsql sqlite",
    "Scala": "scala",
    "Swift": "swift",
    "TOML": "toml",
    "TypeScript": "typescript ts tsx",
    "XML": "xml svg",
    "YAML": "yaml yml",
}
_BY_MARK = {mark: name for name, marks in _NAMES.items() for mark in marks.split()}
_MARK = re.compile(r"[`~\s{.]*([\w+#-]*)")


def announcement(fence: str, language: str) -> str:
    """The sentence for a block of code.

    Args:
        fence: the line that opens the block, such as ```` ```python ````.
        language: resolved language of the words around it; English stands for one without a sentence.
    """
    found = _MARK.match(fence)
    name = _BY_MARK.get(found[1].lower(), "") if found else ""
    named, plain = _SENTENCES.get(language, _SENTENCES["en"])
    return named.format(name) if name else plain
