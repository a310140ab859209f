"""A bare zmq.asyncio loop, as somebody writes it who knows ZeroMQ: ROUTER and PUB on the master, DEALER and SUB.

Large frames are not copied, headers are one struct, high-water marks and allocator are left as they are.
"""

import asyncio
import struct
from multiprocessing.connection import Connection

import numpy as np
import zmq
import zmq.asyncio

from pgczmq.bench.transport.turn import Clock, Crew, Turn, serve

HEADER = struct.Struct("<qq")  # step, worker
HELLO = -1


def run(turn: Turn) -> list[float]:
    """A turn."""
    crew = Crew(turn, worker, range(turn.workers))
    seconds = asyncio.run(master(turn, crew))
    crew.join()
    return seconds


async def master(turn: Turn, crew: Crew) -> list[float]:
    """Publish, add up the gradients as they come, update."""
    params, total = turn.work.start(), turn.work.start()
    clock = Clock()
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.PUB) as pub:
        ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (router, pub)]
        crew.tell(ports)
        await all_subscribed(turn, router, pub)
        clock.start()
        for step in range(turn.steps):
            await pub.send_multipart([HEADER.pack(step, 0), params], copy=False)
            total.fill(0)
            for _ in range(turn.workers):
                _, header, gradient = await router.recv_multipart(copy=False)
                assert HEADER.unpack(header.buffer)[0] == step
                total += np.frombuffer(gradient.buffer, np.float32)
            total /= turn.workers
            params = params - total  # not in place: what was sent must stay as it is
            clock.lap()
    turn.work.check(params, turn.steps)
    return clock.seconds


async def all_subscribed(turn: Turn, router: zmq.asyncio.Socket, pub: zmq.asyncio.Socket) -> None:
    """What is published before a worker's subscription is here would be lost to it."""
    heard: set[int] = set()
    while len(heard) < turn.workers:
        await pub.send(HEADER.pack(HELLO, 0))
        while await router.poll(50):
            _, header = await router.recv_multipart()
            heard.add(HEADER.unpack(header)[1])


def worker(turn: Turn, number: int, pipe: Connection) -> None:
    """One worker process."""
    asyncio.run(answer(turn, number, *pipe.recv()))


async def answer(turn: Turn, number: int, gradients: int, params: int) -> None:
    """Receive parameters, send the gradient there."""
    work, out = turn.work, turn.work.start()
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as dealer, context.socket(zmq.SUB) as sub:
        dealer.connect(f"tcp://127.0.0.1:{gradients}")
        sub.subscribe(b"")
        sub.connect(f"tcp://127.0.0.1:{params}")
        await sub.recv()
        await dealer.send(HEADER.pack(HELLO, number))
        step = HELLO
        while step < turn.steps - 1:
            header, *frames = await sub.recv_multipart(copy=False)
            step = HEADER.unpack(header.buffer)[0]
            if step != HELLO:
                work.gradient(number, step, np.frombuffer(frames[0].buffer, np.float32), out=out)
                await dealer.send_multipart([HEADER.pack(step, number), out], copy=False)


if __name__ == "__main__":
    serve(run)
