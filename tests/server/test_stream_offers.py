"""What an agent that attends is still to be told."""

from __future__ import annotations

import asyncio

from rayched.server.services.node_streams import _Offers
from rayched.v1.streams_pb2 import StreamOffer


def test_an_offer_whose_client_has_left_is_withdrawn_and_one_that_was_told_is_hung_up() -> None:
    async def told() -> list[StreamOffer | None]:
        offers = _Offers()
        for session in ("first", "second", "third"):
            offers.offer(session)
        found = [await offers.next()]
        # However often it happens, nothing is left of those of which the agent has not heard.
        offers.hang_up("second")
        offers.hang_up("first")
        found += [await offers.next(), await offers.next()]
        late = asyncio.create_task(offers.next())
        await asyncio.sleep(0)
        assert not late.done()
        offers.end()
        return [*found, await late]

    assert asyncio.run(told()) == [
        StreamOffer(session="first"),
        StreamOffer(session="third"),
        StreamOffer(hung_up="first"),
        None,
    ]
