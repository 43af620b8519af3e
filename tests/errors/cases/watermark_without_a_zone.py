"""A watermark on times without a zone, which are moments only once they are taken for UTC."""

from datetime import datetime
from typing import NamedTuple

import penstock as ps
from penstock import col


class Login(NamedTuple):
    who: str
    at: ps.TimestampNtz


flow = ps.Flow("logins")
logins = flow.source("logins", Login)
logins.with_columns(moment=col.at.cast(datetime)).watermark(col.moment, lateness="10s")  # the way out
logins.watermark(col.at, lateness="10s")
