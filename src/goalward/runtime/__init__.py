"""Controllers without torch: exported once, run by ONNX Runtime."""
