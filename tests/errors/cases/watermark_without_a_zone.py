"""A watermark on times without a zone, which are moments only once they are taken for UTC."""

from datetime import datetime
from typing import NamedTuple

import headrace as hr
from headrace import col


class Login(NamedTuple):
    who: str
    at: hr.TimestampNtz


flow = hr.Flow("logins")
logins = flow.source("logins", Login)
logins.with_columns(moment=col.at.cast(datetime)).watermark(col.moment, lateness="10s")  # the way out
logins.watermark(col.at, lateness="10s")
