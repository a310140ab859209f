"""Virtual time: the engine, pipelines and training of a real run, driven by a heap instead of sockets.

Beside ``net``, and like it: compute comes as an argument, so that nothing here imports torch.
"""
