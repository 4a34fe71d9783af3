"""Prompts as ids of the merged vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import Prompt
from cosyvoice_runtime.lm.merged_vocabulary import MergedVocabulary

FIELD = "input_ids"


def read_prompt(ids: Sequence[int], vocabulary: MergedVocabulary) -> Prompt:
    """The prompt in ``[sos] text [task_id] speech``; a transcript is part of the text.

    Raises:
        InvalidInput: another layout; names the first offending id and its position.
    """
    if not ids or ids[0] != vocabulary.sos_id:
        raise InvalidInput(FIELD, list(ids[:1]), f"the first id is sos, {vocabulary.sos_id}")
    if vocabulary.task_id not in ids:
        limit = f"the text ends with task_id, {vocabulary.task_id}"
        raise InvalidInput(FIELD, f"{len(ids)} ids without task_id", limit)
    task = ids.index(vocabulary.task_id)
    if task == 1:
        raise InvalidInput(FIELD, list(ids[:2]), "at least one text id stands between sos and task_id")
    codes = vocabulary.code_ids
    _check("text", ids, range(1, task), vocabulary.text_ids)
    _check("prompt speech", ids, range(task + 1, len(ids)), codes)
    speech = tuple(id_ - codes.start for id_ in ids[task + 1 :])
    return Prompt(tuple(ids[1:task]), prompt_speech=speech)


def _check(what: str, ids: Sequence[int], places: range, accepted: range) -> None:
    for place in places:
        if ids[place] not in accepted:
            limit = f"{what} ids are {accepted.start} to {accepted.stop - 1}"
            raise InvalidInput(FIELD, f"{ids[place]} at position {place}", limit)
