"""What families with a Qwen2 as their speech LM share."""

from __future__ import annotations

from cosyvoice_runtime.families.family import SpeechLmNeeds

QWEN2_VOCABULARY = "CosyVoice-BlankEN/vocab.json"
QWEN2_TOKENIZER = "cosyvoice_runtime.text.tokenizer:TextTokenizer.beside"
QWEN2_NEEDS = SpeechLmNeeds(4096, 64, 24 * 2 * 2 * 64 * 2, 2.7, fused_gib=0.7)
"""24 layers, two heads of 64 that keep something; the network as measured in bfloat16 on an H200, and its 360
million parameters of layers and head once more."""
