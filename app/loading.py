"""An engine for a command that answers by itself."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from app.setting_names import as_flags
from app.settings import Settings, SettingsError
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.engine import Engine


def load_engine(settings: Settings) -> Engine:
    """Torch is imported here, when it is known that there is work for it.

    Raises:
        SettingsError: the model, the device or the memory that the settings name cannot be had.
    """
    # Where an exception meets torch's import, C++ aborts with a message of its own: Ctrl-C just ends us.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from engine.engine import Engine
    finally:
        signal.signal(signal.SIGINT, handler)
    try:
        return Engine.load(settings.model, **settings.engine_options)
    except EngineError as error:
        raise SettingsError(as_flags(str(error))) from None
