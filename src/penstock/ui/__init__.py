"""Web page of a run, of a checkpoint at rest, or of a controller."""

from penstock.ui.checkpoint_page import CheckpointPage
from penstock.ui.page import Json, Page
from penstock.ui.run_page import RunPage, RunSubject
from penstock.ui.server import serving_page

__all__ = ["CheckpointPage", "Json", "Page", "RunPage", "RunSubject", "serving_page"]
