"""An engine that closes, or whose thread dies: who is told, and what stays behind."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial

import pytest

from engine.engine import Engine
from engine.errors import EngineError, ModelNotFound
from engine.events import Failed
from engine.loop import Mode
from engine.models.base import Model
from engine.request import Request
from tests.engine.asking import Listener, engine_on, picture, submit, until
from tests.engine.faulty import Watched

SHORT = Request("detect", picture(2), ("white",), max_objects=2, dedupe=False)
LONG = Request("detect", picture(3), ("red circle",), max_objects=500, dedupe=False)


def pointbox_threads() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("pointbox"))


@pytest.mark.parametrize("mode", ["pipelined", "blocking"])
def test_closing_while_busy_tells_everyone(endless: Model, mode: Mode) -> None:
    """Running, waiting for a row, and still to be prepared."""
    before = pointbox_threads()
    model = Watched(endless)
    engine = engine_on(model, mode=mode, max_batch=2)
    listeners = [submit(engine, replace(LONG, image=picture(i)))[0] for i in range(6)]
    until(lambda: engine.stats().waiting == 4, "four wait for a row")
    model.prepare.clear()
    listeners += [submit(engine, replace(LONG, image=picture(i)))[0] for i in range(20)]
    threading.Timer(0.2, model.prepare.set).start()
    engine.close()
    assert [listener.error for listener in listeners] == ["closed"] * 26
    assert not any(listener.late for listener in listeners)
    assert pointbox_threads() == before
    engine.close()


def test_closing_right_after_submitting(endless: Model) -> None:
    for _ in range(5):
        engine = engine_on(endless)
        listeners = [submit(engine, LONG)[0] for _ in range(8)]
        engine.close()
        assert [listener.error for listener in listeners] == ["closed"] * 8


def test_a_closed_engine_says_so(endless: Model) -> None:
    engine = engine_on(endless)
    _, handle = submit(engine, LONG)
    engine.close()
    handle.cancel()
    for call in (partial(engine.ask, LONG), engine.stats, engine.check_integrity, engine.clear_cache):
        with pytest.raises(EngineError, match="closed") as raised:
            call()
        assert raised.value.kind == "closed"


def test_submitting_while_another_thread_closes(endless: Model) -> None:
    """Whoever got in is told the end, whoever came late gets the error at once."""
    for _ in range(5):
        engine = engine_on(endless)
        listeners: list[Listener] = []
        errors: list[str] = []

        def keep_asking(
            engine: Engine = engine, listeners: list[Listener] = listeners, errors: list[str] = errors
        ) -> None:
            while not errors:
                try:
                    listeners.append(submit(engine, SHORT)[0])
                except EngineError as error:
                    errors.append(error.kind)

        threads = [threading.Thread(target=keep_asking) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda listeners=listeners: len(listeners) > 5, "some are in")
        engine.close()
        for thread in threads:
            thread.join()
        assert set(errors) == {"closed"}
        assert {listener.error for listener in listeners} <= {None, "closed"}


def test_an_engine_thread_that_dies_tells_everyone(endless: Model) -> None:
    """A fault that is ours."""
    model = Watched(endless)
    with engine_on(model, max_batch=2) as engine:
        listeners = [submit(engine, replace(LONG, image=picture(i)))[0] for i in range(4)]
        until(lambda: bool(listeners[0].found), "work is under way")
        engine._loop.post(lambda: (_ for _ in ()).throw(ZeroDivisionError("a bug")))  # type: ignore[arg-type]
        kinds = [listener.error for listener in listeners]
        assert kinds == ["closed"] * 4
        assert isinstance(listeners[0].events[-1], Failed)
        with pytest.raises(EngineError, match="closed"):
            engine.ask(SHORT)
        with pytest.raises(EngineError, match="closed"):
            engine.stats()


def test_a_model_that_is_not_there_leaves_no_threads(tmp_path) -> None:  # type: ignore[no-untyped-def]
    before = pointbox_threads()
    for name in ("no-such-model", str(tmp_path), "../tiny"):
        with pytest.raises(ModelNotFound):
            Engine.load(name)
    with pytest.raises(EngineError, match="unknown device"):
        Engine.load("tiny", device="abacus")
    assert pointbox_threads() == before
