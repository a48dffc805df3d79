"""Where settings come from."""

from __future__ import annotations

import pytest

from app.misspelt import misspelt
from app.setting_names import as_flags
from app.settings import Settings, SettingsError


def test_a_flag_wins_over_the_environment_and_that_over_the_default():
    environ = {"POINTBOX_PORT": "9000", "POINTBOX_MODEL": "other", "POINTBOX_DRAIN_S": "2.5"}
    settings = Settings.load(environ, port=9001, host=None)
    assert (settings.port, settings.model, settings.drain_s) == (9001, "other", 2.5)
    assert (settings.host, settings.redis_url) == ("127.0.0.1", None)


def test_a_child_reads_the_same_settings():
    settings = Settings(
        port=0,
        redis_url="redis://x",
        mode="blocking",
        queue_bytes=10**9,
        kv_memory=3**9,
        dtype="bfloat16",
        revision="v1",
        adapter="cats=/a, dogs=/b",
    )
    assert settings.engine_options["adapters"] == {"cats": "/a", "dogs": "/b"}
    assert Settings.load(settings.to_environ()) == settings
    assert Settings.load(Settings().to_environ()) == Settings()


@pytest.mark.parametrize(
    ("environ", "word"),
    [
        ({"POINTBOX_PORT": "many"}, "POINTBOX_PORT"),
        ({"POINTBOX_PORT": "70000"}, "^POINTBOX_PORT must be between 0 and 65535"),
        ({"POINTBOX_MODE": "fast"}, "pipelined"),
        ({"POINTBOX_MAX_BATCH": "0"}, "^POINTBOX_MAX_BATCH must be greater than 0"),
        ({"POINTBOX_DTYPE": "int4"}, "float32, bfloat16, float16"),
        ({"POINTBOX_ADAPTER": "cats"}, "name=folder, not 'cats'"),
        ({"POINTBOX_ADAPTER": "=/folder"}, "name=folder, not '=/folder'"),
        ({"POINTBOX_ADAPTER": "a=/x,a=/y"}, "the name 'a' twice"),
        ({"POINTBOX_ADAPTER": "a=/x", "POINTBOX_MODEL": "tiny,other"}, "^POINTBOX_ADAPTER is for one model"),
        (
            {"POINTBOX_REVISION": "main", "POINTBOX_MODEL": "tiny,other"},
            "^POINTBOX_REVISION is for one model",
        ),
        ({"POINTBOX_MODEL": " , "}, "^POINTBOX_MODEL must name a model$"),
        ({"POINTBOX_BATCH_SHARE": "1.5"}, "^POINTBOX_BATCH_SHARE must be at most 1"),
        ({"POINTBOX_FLOOD_SHARE": "1.5"}, "^POINTBOX_FLOOD_SHARE must be at most 1"),
        ({"POINTBOX_KV_MEMORY": "lots"}, "POINTBOX_KV_MEMORY must be a number of bytes, such as 512M or 2G"),
        ({"POINTBOX_KV_MEMORY": "0"}, "^POINTBOX_KV_MEMORY must"),
        ({"POINTBOX_REDIS_URL": "localhost:6379"}, "redis://"),
        ({"POINTBOX_REDIS_URL": "redis://host:port"}, "^POINTBOX_REDIS_URL cannot"),
        (
            {"POINTBOX_CORS_ORIGINS": "foo"},
            "^POINTBOX_CORS_ORIGINS must have origins such as https://.*'foo'$",
        ),
        ({"POINTBOX_CORS_ORIGINS": "*, https://a.example.com/page"}, "not 'https://a.example.com/page'"),
        ({"POINTBOX_CORS_ORIGINS": "http://localhost:port"}, "not 'http://localhost:port'"),
        ({"POINTBOX_CORS_ORIGINS": "https://"}, "not 'https:/'"),
        ({"POINTBOX_NAMESPACE": "a:b"}, "^POINTBOX_NAMESPACE must"),
        (
            {"POINTBOX_TENANT_QUEUE_BYTES": "1000"},
            "TENANT_QUEUE_BYTES must be at least POINTBOX_BODY_LIMIT_BYTES",
        ),
        ({"POINTBOX_DEFAULT_TIMEOUT_S": "nan"}, "^POINTBOX_DEFAULT_TIMEOUT_S must"),
        ({"POINTBOX_DRAIN_S": "inf"}, "^POINTBOX_DRAIN_S must be finite"),
        (
            {"POINTBOX_MAX_TIMEOUT_S": "5"},
            "^POINTBOX_DEFAULT_TIMEOUT_S must be at most POINTBOX_MAX_TIMEOUT_S$",
        ),
    ],
)
def test_a_wrong_value_is_named_in_one_line(environ, word):
    with pytest.raises(SettingsError, match=word) as caught:
        Settings.load(environ)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"kv_memory": "lots"}, "--kv-memory must be a number of bytes"),
        ({"kv_memory": "0"}, "--kv-memory must be greater than 0"),
        ({"port": 70_000}, "--port must be between"),
        ({"max_batch": 0}, "--max-batch must be greater"),
        ({"dtype": "int4"}, "--dtype must be one of"),
        ({"adapter": "a=/x", "model": "tiny,other"}, "--adapter is for one model"),
    ],
)
def test_a_wrong_flag_is_named_as_it_is_typed(flags, says):
    with pytest.raises(SettingsError, match=f"^{says}"):
        Settings.load({}, **flags)


def test_the_engines_options_are_told_as_flags():
    assert as_flags("lower kv_memory or max_batch") == "lower --kv-memory or --max-batch"
    assert as_flags("the model has no max_tokens") == "the model has no max_tokens"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 1 << 20),
        ("1M", 1 << 20),
        ("512 MiB", 512 << 20),
        ("2g", 2 << 30),
        ("1.5GB", 3 << 29),
        ("1T", 1 << 40),
    ],
)
def test_sizes_as_people_write_them(text, size):
    assert Settings.load({}, kv_memory=text).kv_memory == size
    assert Settings.load({"POINTBOX_KV_MEMORY": text}).kv_memory == size
    assert Settings.load({"POINTBOX_KV_MEMORY": "7"}, kv_memory=text).engine_options["kv_memory"] == size


def test_several_models_and_the_name_of_a_folder(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    settings = Settings(model=f"{folder}, tiny,")
    assert (settings.models, settings.default_model) == ([str(folder), "tiny"], "mine")
    assert Settings().default_model == "tiny"


def test_where_images_may_be_fetched_from():
    environ = {"POINTBOX_FETCH": "allowlist", "POINTBOX_FETCH_ALLOW": "a.example.com, 10.1.0.0/16"}
    policy = Settings.load(environ).fetch_policy()
    assert policy.mode == "allowlist"
    assert policy.hosts == {"a.example.com"}
    assert Settings().fetch_policy().mode == "off"
    for wrong in ({"fetch": "everything"}, {"fetch": "allowlist"}, {"fetch": "public", "fetch_allow": "a b"}):
        with pytest.raises(SettingsError, match="fetch"):
            Settings.load({}, **wrong)


def test_origins():
    settings = Settings(cors_origins=" https://A.example.com/, http://localhost:3000 ,")
    assert settings.allowed_origins == {"https://a.example.com", "http://localhost:3000"}
    for origin in ("*", "http://[::1]:8000", "capacitor://localhost"):
        assert Settings(cors_origins=origin).allowed_origins == {origin}


def test_a_misspelt_variable_is_told_with_the_one_that_is_meant():
    environ = {"POINTBOX_PROT": "1", "POINTBOX_QUEUE_DEPHT": "5", "PATH": "/bin", "POINTBOX_PORT": "8000"}
    nearest = {"POINTBOX_PROT": "POINTBOX_PORT", "POINTBOX_QUEUE_DEPHT": "POINTBOX_QUEUE_DEPTH"}
    assert misspelt(environ) == nearest
    of_others = ("POINTBOX_API_KEY", "POINTBOX_URL", "POINTBOX_SERVICE_HOST", "POINTBOX_PORT_8000_TCP")
    assert misspelt(dict.fromkeys((*of_others, *Settings().to_environ()), "x")) == {}
