"""A worker of NVIDIA Dynamo beside each server: Dynamo's frontend speaks OpenAI's API through it.

See docs/fleet.md#nvidia-dynamo.
"""
