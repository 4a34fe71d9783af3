"""Tokens that families add to the Qwen2 byte-level vocabulary, in the order of their ids.

The published ``vocab.json`` ends at id 151642; the three tokens of Qwen2 follow (listed in the published
``tokenizer_config.json``), then those of the family (listed nowhere in the directory).
"""

from __future__ import annotations

QWEN2_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_PROMPT = "<|endofprompt|>"
SOUND_TOKENS = (
    END_OF_PROMPT, "[breath]", "<strong>", "</strong>", "[noise]", "[laughter]", "[cough]", "[clucking]",
    "[accent]", "[quick_breath]", "<laughter>", "</laughter>", "[hissing]", "[sigh]", "[vocalized-noise]",
    "[lipsmack]", "[mn]",
)  # fmt: skip
SPECIAL_TOKENS = QWEN2_TOKENS + SOUND_TOKENS
"""Tokens after the vocabulary of a Qwen2, up to id 151662 of the published one."""

ARPABET = """
    AA AA0 AA1 AA2 AE AE0 AE1 AE2 AH AH0 AH1 AH2 AO AO0 AO1 AO2 AW AW0 AW1 AW2 AY AY0 AY1 AY2 B CH D
    DH EH EH0 EH1 EH2 ER ER0 ER1 ER2 EY EY0 EY1 EY2 F G HH IH IH0 IH1 IH2 IY IY0 IY1 IY2 JH K L M N
    NG OW OW0 OW1 OW2 OY OY0 OY1 OY2 P R S SH T TH UH UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH
"""
"""English phones (CMU's ARPAbet), with the stress digits 0 to 2 where they are vowels."""

PINYIN = """
    a ai an ang ao b c ch d e ei en eng f g h i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè ié
    iòng ióng iù iú iā iān iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ j k l m n o ong ou p q r s
    sh t u uang ue un uo uà uài uàn uàng uá uái uán uáng uè ué uì uí uò uó uā uāi uān uāng uē uě uī
    uō uǎ uǎi uǎn uǎng uǐ uǒ vè w x y z zh à ài àn àng ào á ái án áng áo è èi èn èng èr é éi én éng
    ér ì ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi ān āng āo ē ēi ēn ēng ě ěi ěn ěng ěr ī īn
    īng ō ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ ǜ
"""
"""Mandarin initials and finals, finals with their tone."""

UNITS = tuple(f"[{unit}]" for unit in (ARPABET + PINYIN).split())
"""Units of pronunciation, as texts have them in brackets."""
SPECIAL_TOKENS_AND_UNITS = (*SPECIAL_TOKENS, "<|endofsystem|>", *UNITS)
"""Tokens after the vocabulary of a Qwen2 that reads units of pronunciation,
up to id 151923 of a published one."""
