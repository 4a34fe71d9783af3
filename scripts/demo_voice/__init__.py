"""Training of the demo voice: a small checkpoint of CosyVoice2's architecture that speaks.

``python -m scripts.demo_voice`` runs every stage; ``demo_voice/README.md`` is the model card.
"""
