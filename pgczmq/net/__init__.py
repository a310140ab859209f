"""The driver over ZeroMQ, and the only home of zmq: carries out what the core decides, with compute as an argument."""
