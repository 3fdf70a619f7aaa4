"""The viewer in a notebook: the same page in its own frame; the selected step is available as traits of the widget."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from goalscope._ground.extras import lacking
from goalscope._ground.folder import temporary_folder
from goalscope.verdict.viewer.page import MOST_OF_FILE, write_view

SCRIPT: Final = """
function render({ model, el }) {
  const frame = document.createElement("iframe");
  // Scripts alone: the page has an origin of its own, and reaches neither the notebook nor the network.
  frame.sandbox = "allow-scripts";
  frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 1px solid #8884`;
  const address = URL.createObjectURL(new Blob([model.get("page")], { type: "text/html" }));
  const [episode, step] = [model.get("episode").replace(/^episode-/, "").slice(0, 12), model.get("step")];
  frame.src = episode ? `${address}#e=${episode}&s=${step}` : address;
  const follow = ({ source, data }) => {
    if (source !== frame.contentWindow || typeof data?.episode !== "string" || !Number.isInteger(data.step)) return;
    model.set("episode", data.episode);
    model.set("step", data.step);
    model.save_changes();
  };
  addEventListener("message", follow);
  el.append(frame);
  return () => {
    removeEventListener("message", follow);
    URL.revokeObjectURL(address);
  };
}
export default { render };
"""
"""Script of the widget: it shows the page and listens for the selected step, nothing else."""


def view(*paths: str | Path, episode: str = "", step: int = 0, height: int = 760) -> Any:
    """Return a notebook widget that shows runs and evaluations in the viewer.

    Its traits ``episode`` and ``step`` contain the id of the selected episode and the number of the selected step.

    Args:
        paths: directories of runs and evaluations. One page shows the episodes of all of them.
        episode: id of the episode to open first, or its beginning; "" for the list.
        step: step to open first.
        height: height of the widget in pixels.

    Raises:
        ImportError: anywidget is not installed (it comes with the extra ``notebook``).
        FileNotFoundError: a path contains neither a run nor an evaluation.
        ValueError: there are no episodes, or more data than fit on a page.
    """
    try:
        anywidget, traitlets = import_module("anywidget"), import_module("traitlets")
    except ImportError as error:
        raise lacking("the viewer in a notebook needs anywidget", "notebook", error) from error
    with temporary_folder() as folder:
        written = write_view(paths, folder.file("view.html"))
        if written.shards:
            raise ValueError(
                f"a notebook holds at most {MOST_OF_FILE / 1e6:g} MB of episodes, these are {written.octets / 1e6:.0f} "
                "MB: goalscope view writes them as a page with a folder"
            )
        page = folder.load_text("view.html")
    fields = {
        "_esm": SCRIPT,
        "page": traitlets.Unicode().tag(sync=True),
        "episode": traitlets.Unicode().tag(sync=True),
        "step": traitlets.Int().tag(sync=True),
        "height": traitlets.Int().tag(sync=True),
    }
    widget: Any = type("EpisodeViewer", (anywidget.AnyWidget,), fields)
    return widget(page=page, episode=episode, step=step, height=height)
