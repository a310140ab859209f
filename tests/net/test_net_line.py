"""A socket on the event loop: nothing that came is overlooked, nothing that waits to be sent is forgotten."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import zmq
from cluster import unexpected

from pgczmq.net import line as module
from pgczmq.net.limits import FRAMES_AT_MOST
from pgczmq.net.line import Line

MESSAGES = 20_000


@dataclass
class Ends:
    """A ROUTER and DEALERs that are connected to it."""

    context: zmq.Context[zmq.Socket[bytes]]
    router: Line
    address: str
    dealers: list[Line] = field(default_factory=list)

    def dealer(self, name: bytes, **options: int) -> Line:
        socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.ROUTING_ID, name)
        for option, value in options.items():
            socket.setsockopt(getattr(zmq, option), value)
        socket.connect(self.address)
        self.dealers.append(Line(socket))
        return self.dealers[-1]


@pytest.fixture
def ends() -> Iterator[Ends]:
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    ends = Ends(context, Line(router), f"tcp://127.0.0.1:{port}")
    yield ends
    for line in (ends.router, *ends.dealers):
        line.close(linger=0)
    context.term()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("mark", [1, 1000])
async def test_nothing_is_overlooked_where_both_ends_send_and_receive_over_one_socket(ends: Ends, mark: int) -> None:
    """Report 12: ZeroMQ tells once, to whichever call happens to come first, a send as well as a receive."""
    ends.router.socket.setsockopt(zmq.RCVHWM, mark)
    dealers = [ends.dealer(bytes([65 + number]), SNDHWM=mark) for number in range(4)]
    came: dict[bytes, list[int]] = {bytes([65 + number]): [] for number in range(4)}
    answers = [0] * 4

    def on_question(frames: list[zmq.Frame]) -> None:
        name, question = (frame.bytes for frame in frames)
        came[name].append(int(question))
        ends.router.send_now([name, question])

    def on_answer(number: int) -> Callable[[list[zmq.Frame]], None]:
        def count(_: list[zmq.Frame]) -> None:
            answers[number] += 1
            if answers[number] % 3 == 0:
                dealers[number].send([b"%d" % -answers[number]])

        return count

    for number, dealer in enumerate(dealers):
        dealer.listen(on_answer(number), unexpected)
    ends.router.listen(on_question, unexpected)
    for question in range(MESSAGES // 4):
        for dealer in dealers:
            dealer.send([b"%d" % question])
        if question % 100 == 0:
            await asyncio.sleep(0)

    def all_came() -> bool:
        return all([one for one in asked if one >= 0][-1:] == [MESSAGES // 4 - 1] for asked in came.values())

    await until(all_came)
    for asked in came.values():
        assert [one for one in asked if one >= 0] == list(range(MESSAGES // 4))
    await until(lambda: sum(answers) == sum(map(len, came.values())))


async def test_what_waits_for_a_peer_is_sent_in_order_when_it_is_there() -> None:
    with zmq.Context() as context:
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        address = f"ipc://@pgczmq-test-{uuid.uuid4().hex}"  # a port that is only looked at may be somebody's soon
        socket.connect(address)
        dealer = Line(socket)
        sendings = [dealer.send([b"%d" % number, b"payload"]) for number in range(10)]
        assert not any(sending.has_left for sending in sendings)
        assert isinstance(dealer.send_now([b"now"]), zmq.Again)
        router = Line(context.socket(zmq.ROUTER))
        router.socket.bind(address)
        came: list[list[bytes]] = []
        router.listen(lambda frames: came.append([frame.bytes for frame in frames[1:]]), unexpected)
        await until(lambda: len(came) == 10)
        assert came == [[b"%d" % number, b"payload"] for number in range(10)]
        assert all(sending.has_left for sending in sendings)
        dealer.close(0)
        router.close(0)


async def test_a_large_frame_has_left_when_zeromq_is_done_with_it(ends: Ends) -> None:
    dealer = ends.dealer(b"a")
    sending = dealer.send([bytes(50_000_000)])
    assert not sending.has_left
    came: list[int] = []
    ends.router.listen(lambda frames: came.append(len(frames[1])), unexpected)
    await until(lambda: came == [50_000_000])
    await until(lambda: sending.has_left)


async def test_an_error_is_told_and_ends_the_listening(ends: Ends) -> None:
    dealer, told, taken = ends.dealer(b"a"), list[Exception](), list[bytes]()

    def take(frames: list[zmq.Frame]) -> None:
        taken.append(frames[1].bytes)
        raise ValueError("what was said")

    ends.router.listen(take, told.append)
    dealer.send([b"first"])
    dealer.send([b"second"])
    await until(lambda: bool(told))
    await asyncio.sleep(0.1)
    assert taken == [b"first"]
    assert [str(error) for error in told] == ["what was said"]


async def test_an_error_costs_nothing_that_waits_to_be_sent(ends: Ends) -> None:
    ends.router.socket.setsockopt(zmq.RCVHWM, 1)
    dealer, told, came = ends.dealer(b"a", SNDHWM=1), list[Exception](), list[bytes]()
    dealer.send([b"hello"])
    ends.router.listen(lambda frames: came.append(frames[1].bytes), unexpected)
    await until(lambda: came == [b"hello"])
    ends.router.ignore()

    def fail(_: list[zmq.Frame]) -> None:
        raise ValueError("what was said")

    dealer.listen(fail, told.append)
    sendings = [dealer.send([b"%d" % number, bytes(2_000_000)]) for number in range(40)]
    assert any(sending.tracker is None for sending in sendings), "some must wait"
    ends.router.send_now([b"a", b"x"])
    await until(lambda: bool(told))
    ends.router.listen(lambda frames: came.append(frames[1].bytes), unexpected)
    await until(lambda: len(came) == 41)
    assert came[1:] == [b"%d" % number for number in range(40)]
    assert all(sending.tracker is not None for sending in sendings)


async def test_a_line_that_wants_nothing_is_not_woken(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    ends.router.socket.setsockopt(zmq.RCVHWM, 1)
    dealer, woken = ends.dealer(b"a", SNDHWM=1), 0
    sendings = [dealer.send([bytes(2_000_000)]) for _ in range(40)]
    dealer.ignore()
    ends.router.listen(lambda frames: None, unexpected)
    await until(lambda: all(sending.tracker is not None for sending in sendings))
    for _ in range(10):
        ends.router.send_now([b"a", b"nobody listens"])
    wake = Line._wake

    def count(line: Line) -> None:
        nonlocal woken
        woken += line is dealer
        wake(line)

    monkeypatch.setattr(Line, "_wake", count)
    await asyncio.sleep(0.2)
    assert woken <= 1


async def test_whoever_answers_all_that_comes_leaves_others_their_turn(ends: Ends) -> None:
    """Each answer looks whether something has come; all of them together look once."""
    dealer, answered, longest = ends.dealer(b"a"), 0, 0
    for _ in range(1000):
        dealer.send([b"x"])
    await asyncio.sleep(0.2)

    def answer(frames: list[zmq.Frame]) -> None:
        nonlocal answered
        answered += 1
        ends.router.send_now([b"a", b"y"])

    ends.router.listen(answer, unexpected)
    while answered < 1000:
        before = answered
        await asyncio.sleep(0)
        longest = max(longest, answered - before)
    assert longest <= 2 * module.MESSAGES_IN_A_ROW


async def test_a_line_may_be_closed_by_whoever_takes_its_message(ends: Ends) -> None:
    dealer, taken = ends.dealer(b"a"), list[bytes]()

    def take(frames: list[zmq.Frame]) -> None:
        taken.append(frames[1].bytes)
        if len(taken) == module.MESSAGES_IN_A_ROW:  # the last one before others have their turn
            ends.router.close(0)

    for _ in range(100):
        dealer.send([b"x"])
    await asyncio.sleep(0.1)
    ends.router.listen(take, unexpected)
    await until(lambda: ends.router.closed)
    await asyncio.sleep(0.05)
    assert len(taken) == module.MESSAGES_IN_A_ROW


async def test_others_have_their_turn_while_much_comes(ends: Ends) -> None:
    dealer, turns, came = ends.dealer(b"a"), 0, 0
    for _ in range(500):
        dealer.send([b"x"])
    dealer.send([b"header", *[b""] * 5000])
    await asyncio.sleep(0.2)

    def count(frames: list[zmq.Frame]) -> None:
        nonlocal came
        came += 1
        if came > 500:
            assert [frame.bytes for frame in frames] == [b"a", b"header", *[b""] * (FRAMES_AT_MOST - 2)]

    ends.router.listen(count, unexpected)
    while came < 501:
        await asyncio.sleep(0)
        turns += 1
    in_a_turn = 2  # the loop may find the descriptor readable beside what is due already
    assert turns >= (500 // module.MESSAGES_IN_A_ROW + 5000 // module.FRAMES_IN_A_ROW) // in_a_turn
