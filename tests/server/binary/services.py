"""The binary port of a broker in this process, without sockets."""

from penstock.server.binary.service import BinaryService


def service_of(broker):
    app = broker.app
    return BinaryService(
        app.driver,
        broker.settings,
        app.auth,
        rate=app.rate,
        budget=app.send_budget,
        memory=app.memory,
        shared=app.shared,
        traffic=app.binary,
        logger=app.logger,
    )
