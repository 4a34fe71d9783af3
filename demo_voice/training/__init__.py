"""Training of the demo voice: a small checkpoint of CosyVoice2's architecture that speaks.

``python -m demo_voice.training`` runs every stage; ``demo_voice/README.md`` is the model card.
"""
