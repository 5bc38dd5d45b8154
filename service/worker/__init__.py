"""The model's process: its client in the server, its main program, and their messages.

Only this package opens models and chooses between the runners for CPU and CUDA. It may import
batching and the packages below.
"""
