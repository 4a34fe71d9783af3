"""Names and shapes of the layers that the networks are made of."""

from __future__ import annotations

Shape = tuple[int, ...]
Schema = dict[str, Shape]


def linear(name: str, out_features: int, in_features: int, bias: bool = True) -> Schema:
    weight: Schema = {f"{name}.weight": (out_features, in_features)}
    return weight | {f"{name}.bias": (out_features,)} if bias else weight


def convolution(name: str, out_channels: int, in_channels: int, kernel: int) -> Schema:
    return {f"{name}.weight": (out_channels, in_channels, kernel), f"{name}.bias": (out_channels,)}


def norm(name: str, width: int) -> Schema:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def prefixed(prefix: str, schema: Schema) -> Schema:
    return {f"{prefix}.{name}": shape for name, shape in schema.items()}
