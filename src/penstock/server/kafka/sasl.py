"""SASL: a client shows its key. The user is the key's id, the password its secret."""

from ...errors import PenstockError
from ..binary.sasl import SaslExchange, mechanisms
from .errors import Code
from .session import KafkaSession
from .wire import Values


async def handshake(session: KafkaSession, request: Values) -> Values:
    known, mechanism = mechanisms(is_tls=session.connection.is_tls), request["mechanism"]
    if mechanism not in known:
        return {"error_code": Code.UNSUPPORTED_SASL_MECHANISM, "mechanisms": known}
    session.exchange = SaslExchange(session.service, mechanism, session.connection.client)
    return {"mechanisms": known}


async def authenticate(session: KafkaSession, request: Values) -> Values:
    exchange = session.exchange
    if exchange is None:
        reason = "choose a mechanism first"
        return {"error_code": Code.ILLEGAL_SASL_STATE, "error_message": reason}
    try:
        sent = exchange.step(request["auth_bytes"])
        if exchange.found is not None:
            session.connection.authenticated(*exchange.found)
            session.exchange = None
    except PenstockError as error:
        session.exchange = None
        return {"error_code": Code.SASL_AUTHENTICATION_FAILED, "error_message": str(error)}
    return {"auth_bytes": sent}
