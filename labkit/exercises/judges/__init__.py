"""What decides whether an answer is right, one module a kind of answer."""
