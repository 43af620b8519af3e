"""Web page of a run, of a checkpoint at rest, or of a controller."""

from headrace.ui.run_page import CheckpointPage, RunPage, RunSubject
from headrace.ui.server import JsonObject, Page, serving_page

__all__ = ["CheckpointPage", "JsonObject", "Page", "RunPage", "RunSubject", "serving_page"]
