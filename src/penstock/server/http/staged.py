"""Messages that a request stages, at once or delayed, for a transaction or a named commit."""

from collections.abc import Sequence

from ...api.json.messages import MessageIn, message_of
from ...api.json.publish import delayed_of, moment_of
from ...api.publish import Delayed
from ...model import Message
from .requests import Request


def staged_of(items: Sequence[MessageIn], request: Request) -> tuple[list[Message], list[Delayed]]:
    """Those that come with the commit, and those that it schedules."""
    now_ns, limits = request.now_ns(), request.app.limits
    messages: list[Message] = []
    delayed: list[Delayed] = []
    for one in items:
        moment = moment_of(one, now_ns)
        if moment is None:
            messages.append(message_of(one, now_ns, limits))
        else:
            delayed.append(delayed_of(one, moment, now_ns, limits))
    return messages, delayed
