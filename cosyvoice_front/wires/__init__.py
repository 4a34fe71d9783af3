"""Protocols of websockets by which text comes while its speech leaves."""
