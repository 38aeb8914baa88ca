"""Journeys: the story of a message, told from the records that deliveries leave anyway.

`index` finds the records about one message in a long state log; `traces` names a message by a trace id that nothing has
to store; `story` puts events into order and says what came of the message; `latency` counts how long messages take.
Knows neither files nor groups: the broker hands in what it read.
"""
