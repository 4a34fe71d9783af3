"""The models that run in the engine's process, and the host through which proxy models call them."""
