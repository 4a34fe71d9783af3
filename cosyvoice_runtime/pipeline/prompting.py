"""Which text the speech LM reads for a request."""

from __future__ import annotations

from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.pipeline.request import SpeechRequest
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer, cross_lingual, instruct, zero_shot


def lm_prompts(request: SpeechRequest, front_end: TextFrontEnd, tokenizer: TextTokenizer) -> list[Prompt]:
    """What to feed the speech LM for each segment of the request's text.

    Raises:
        InvalidInput: naming the field of the request that can't be served.
    """
    segments = front_end.segments(request.text, request.language)
    if request.instruct_text is not None:
        prompts = [instruct(tokenizer, request.instruct_text, segment) for segment in segments]
    elif request.cross_lingual or not request.voice.transcript:
        prompts = [cross_lingual(tokenizer, segment) for segment in segments]
    else:
        transcript = front_end.transcript(request.voice.transcript, request.language)
        speech = request.voice.speech_tokens.tolist()
        texts = [zero_shot(tokenizer, transcript, segment) for segment in segments]
        return [Prompt(text.target_ids, text.prompt_ids, speech) for text in texts]
    return [Prompt(text.target_ids, text.prompt_ids) for text in prompts]
