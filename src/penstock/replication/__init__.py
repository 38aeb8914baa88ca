"""Replication: every log of a node, batch by batch, on other nodes. No socket, no clock: drivers have those.

    frames.py     what two nodes say to each other, as bytes with limits
    ballots.py    epochs that two nodes never begin both
    watermark.py  appends in their order, and how far they are committed
    leader.py     `Leader`: hears of every append of the node's logs, counts who has what
    stream.py     `Stream`: what one follower is sent, from memory or from files
    replica.py    `Replica`: the logs of a data directory that another node writes
    reconcile.py  where two histories part, and which of several replicas has the most
    replica_file.py  the file `replica`: what this node has promised, and what it knows to be committed

A leader. `Leader(epoch, min_isr=2)` is handed to `Node(..., reign=leader)`: every log that the node opens or makes is
then tapped. `leader.sequence` counts the appends of the node; a reply waits until `leader.committed` has reached what
`leader.sequence` was when its command had been carried out. Call `leader.advance()` after every sync of the node, and
after `Stream.receive`. `leader.committed_end(log)` is where readers of a log end.

    stream = leader.follow(hello)              # Refused: wrong cluster, level; Fenced: the other knows a later epoch
    stream.receive(frame, payload)             # what the follower said
    for data in stream.take(bytes_max): ...    # encoded frames to send now; none: nothing, or its window is full
    stream.close()                             # the connection is gone: it is not in sync any more

A follower. `Replica(disk)` opens what there is, without machines, and begins no epoch.

    replica.hello(...)                         # sent first; the leader's Hello comes back
    replica.receive(frame, payload)            # appends; returns frames to answer with, not for Durable
    plan = replica.plan_sync(); plan.run()     # in another thread if wanted
    replica.synced(plan)                       # returns the Durable to send
    replica.lead(epoch)                        # promotion: promises an epoch, closes all; then open a Node
"""
