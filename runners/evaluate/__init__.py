"""Accuracy of a running server: gsm8k through lm-eval, in a process of its own."""
