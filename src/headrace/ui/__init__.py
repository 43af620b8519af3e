"""Web page of a run, of a checkpoint at rest, or of a controller."""

from headrace.ui.checkpoint_page import CheckpointPage
from headrace.ui.run_page import RunPage, RunSubject
from headrace.ui.server import Json, Page, serving_page

__all__ = ["CheckpointPage", "Json", "Page", "RunPage", "RunSubject", "serving_page"]
