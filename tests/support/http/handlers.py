"""Handlers that tests of the HTTP server serve."""

import trio

from penstock.net.http.exchange import Exchange


async def echo(exchange: Exchange) -> None:
    await exchange.start(200, [("content-type", "application/octet-stream")])
    while data := await exchange.receive():
        await exchange.send([data])
    await exchange.finish()


async def hello(exchange: Exchange) -> None:
    await exchange.respond(200, [("content-type", "text/plain")], b"hello " + exchange.request.path.encode())


async def count(exchange: Exchange) -> None:
    size = 0
    while data := await exchange.receive():
        size += len(data)
    await exchange.respond(200, [], b"%d" % size)


class Follower:
    """A handler that starts an answer and then idles; remembers how it ended."""

    def __init__(self) -> None:
        self.started = 0
        self.cancelled_at: list[float] = []
        self.ended = trio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.start(200, [("content-type", "text/event-stream")])
        self.started += 1
        await exchange.send([b": hi\n\n"])
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled_at.append(trio.current_time())
            if len(self.cancelled_at) == self.started:
                self.ended.set()
