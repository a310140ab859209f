"""What the loopback carries: as many bytes as a step's parameters and gradients, through one TCP stream."""

import socket
from multiprocessing.connection import Connection

from pgczmq.bench.transport.turn import Clock, Crew, Turn, serve
from pgczmq.errors import PgcError

BLOCK_BYTES = 2**20


def run(turn: Turn) -> list[float]:
    """A turn: the number of a step, as one byte, asks for its bytes."""
    nbytes = turn.work.payload_bytes("float32")
    block = memoryview(bytearray(BLOCK_BYTES))
    crew = Crew(turn, worker, range(1))
    clock = Clock()
    with socket.create_server(("127.0.0.1", 0)) as server:
        crew.tell(server.getsockname())
        stream, _ = server.accept()
        with stream:
            clock.start()
            for step in range(turn.steps):
                stream.sendall(bytes([step % 256]))
                left = nbytes
                while left:
                    received = stream.recv_into(block[: min(left, BLOCK_BYTES)])
                    if not received or block[0] != step % 256:
                        raise PgcError(f"the stream did not carry what was sent at step {step}.")
                    left -= received
                clock.lap()
    crew.join()
    return clock.seconds


def worker(turn: Turn, number: int, pipe: Connection) -> None:
    """The sender."""
    nbytes = turn.work.payload_bytes("float32")
    with socket.create_connection(pipe.recv()) as stream:
        for _ in range(turn.steps):
            block = memoryview(stream.recv(1) * BLOCK_BYTES)
            for start in range(0, nbytes, BLOCK_BYTES):
                stream.sendall(block[: nbytes - start])


if __name__ == "__main__":
    serve(run)
