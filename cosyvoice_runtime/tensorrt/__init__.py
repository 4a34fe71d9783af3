"""Networks as TensorRT engines in place of torch modules: their files, contexts and calls."""
