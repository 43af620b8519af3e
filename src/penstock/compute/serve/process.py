"""The controller process: who calls the controller when, from start to end."""

from __future__ import annotations

import logging

log = logging.getLogger("penstock.controller")
