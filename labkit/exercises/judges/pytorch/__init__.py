"""What decides whether an answer in PyTorch is right: ranks are threads, and all is watched."""
