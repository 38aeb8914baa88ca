"""A broker with a standby: who leads, how the two nodes talk, and what a node answers while it does not lead.

certificates.py   an authority and a certificate for each node, made for `penstock certs`
peer_tls.py       TLS between nodes: both sides show a certificate of the cluster's own authority
link.py           a connection between two nodes, or of an operator with a node: frames with limits
cluster_file.py   what a node has promised, and whether it led: kept over restarts
membership.py     who leads: asks the peer, listens for it, takes what an operator says
leader.py         the leader's side of a stream
follower.py       the follower's side
refusing_ports.py what the ports for clients answer while this node does not lead
"""
