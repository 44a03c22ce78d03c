"""Why is my training slow? Any TensorFlow or PyTorch program, watched and measured by leaving out."""
