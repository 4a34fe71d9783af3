"""The symbols of TensorRT that this project uses: what 10.14 and 11 have in common."""

from __future__ import annotations

from cosyvoice_runtime.preflight.python_api import Symbol

TENSORRT = "tensorrt"
METHODS: dict[str, dict[str, tuple[str, ...]]] = {
    "Builder": {
        "create_network": ("flags",),
        "build_serialized_network": ("network", "config"),
    },
    "OnnxParser": {"parse": ("model",), "get_error": ("index",)},
    "IBuilderConfig": {
        "clear_flag": ("flag",),
        "set_preview_feature": ("feature", "enable"),
        "create_timing_cache": ("serialized_timing_cache",),
        "set_timing_cache": ("cache", "ignore_mismatch"),
        "add_optimization_profile": ("profile",),
    },
    "IOptimizationProfile": {"set_shape": ("input", "min", "opt", "max")},
    "Runtime": {"deserialize_cuda_engine": ("serialized_engine",)},
    "ICudaEngine": {
        "get_tensor_name": ("index",),
        "get_tensor_mode": ("name",),
        "get_tensor_dtype": ("name",),
        "get_tensor_profile_shape": ("name", "profile_index"),
        "create_execution_context": ("strategy",),
    },
    "IExecutionContext": {
        "set_optimization_profile_async": ("profile_index", "stream_handle"),
        "set_input_shape": ("name", "shape"),
        "get_tensor_shape": ("name",),
        "set_device_memory": ("memory", "size"),
        "set_tensor_address": ("name", "memory"),
        "execute_async_v3": ("stream_handle",),
    },
}
"""Parameters passed to each method, by class."""

USED: tuple[Symbol, ...] = (
    Symbol(TENSORRT, "Logger", ("min_severity",), ("WARNING",)),
    Symbol(TENSORRT, "Builder", ("logger",), ("create_builder_config", "create_optimization_profile")),
    Symbol(TENSORRT, "OnnxParser", ("network", "logger"), ("num_errors",)),
    Symbol(TENSORRT, "IBuilderConfig", (), ("get_timing_cache",)),
    Symbol(TENSORRT, "ITimingCache", (), ("serialize",)),
    Symbol(TENSORRT, "Runtime", ("logger",)),
    Symbol(TENSORRT, "ICudaEngine", (), ("num_io_tensors", "num_optimization_profiles")),
    Symbol(TENSORRT, "IExecutionContext", (), ("update_device_memory_size_for_shapes",)),
    *(
        Symbol(TENSORRT, f"{owner}.{method}", parameters)
        for owner, methods in METHODS.items()
        for method, parameters in methods.items()
    ),
    Symbol(TENSORRT, "NetworkDefinitionCreationFlag", (), ("STRONGLY_TYPED",)),
    Symbol(TENSORRT, "BuilderFlag", (), ("TF32",)),
    Symbol(TENSORRT, "PreviewFeature", (), ("RUNTIME_ACTIVATION_RESIZE_10_10",)),
    Symbol(TENSORRT, "TensorIOMode", (), ("INPUT",)),
    Symbol(TENSORRT, "DataType", (), ("FLOAT", "HALF", "BOOL", "INT64", "INT32")),
    Symbol(TENSORRT, "ExecutionContextAllocationStrategy", (), ("USER_MANAGED",)),
)
