"""OpenAI's speech API in front of a Triton server: ``python -m cosyvoice_front``.

A process of its own, in asyncio throughout, that knows the server's gRPC port alone.
"""
