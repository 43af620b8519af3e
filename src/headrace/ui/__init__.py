"""Web page of a run, of a checkpoint at rest, of a controller, or of a pipeline."""

from headrace.ui.run_page import CheckpointPage, RunPage, RunSubject
from headrace.ui.server import JsonObject, Page, serving_page

__all__ = ["CheckpointPage", "JsonObject", "Page", "RunPage", "RunSubject", "serving_page"]
