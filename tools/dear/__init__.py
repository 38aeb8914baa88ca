"""The parts of tools/one_request.py: a broker under judgement, clients beside it, and the dearest requests."""
