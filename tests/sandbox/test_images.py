"""Building task images by content, on the real engine."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox import engine
from sandbox.config import SandboxConfig
from sandbox.errors import ImageError, SandboxError
from sandbox.harbor import Task
from sandbox.images import ensure_image

pytestmark = pytest.mark.docker
MakeTask = Callable[..., Task]


def test_an_image_is_built_once_for_the_same_content(make_task: MakeTask, config: SandboxConfig) -> None:
    with ThreadPoolExecutor(3) as pool:
        tasks = [make_task("a"), make_task("b", test="exit 1"), make_task("c", toml='[task]\nname = "x"\n')]
        ids = set(pool.map(lambda task: ensure_image(task, config), tasks))
    assert len(ids) == 1
    labels = engine.connect().images.get(ids.pop()).labels
    assert labels[engine.LABEL] == "1" and int(labels[engine.EXPIRES_LABEL]) > 0


def test_other_content_or_another_user_makes_another_image(
    make_task: MakeTask, config: SandboxConfig
) -> None:
    task = make_task()
    other = config.model_copy(update={"user": "1001:1001"})
    images = {ensure_image(task, config), ensure_image(task, other)}
    (task.path / "environment" / "data" / "four").write_text("four")
    assert len(images | {ensure_image(task, config)}) == 3


def test_a_missing_base_image_names_the_remedy(make_task: MakeTask, config: SandboxConfig) -> None:
    config = config.model_copy(update={"base_image": "nightschool-base:nowhere"})
    with pytest.raises(ImageError, match="make setup"):
        ensure_image(make_task(dockerfile="FROM nightschool-base:nowhere\n"), config)


def test_a_failing_build_shows_the_end_of_its_log(make_task: MakeTask, config: SandboxConfig) -> None:
    with pytest.raises(ImageError, match="broken on purpose"):
        ensure_image(
            make_task(dockerfile="FROM nightschool-base:bookworm\nRUN echo broken on purpose; false\n"),
            config,
        )


def test_a_build_has_no_network(make_task: MakeTask, config: SandboxConfig) -> None:
    dockerfile = "FROM nightschool-base:bookworm\nRUN echo interfaces: $(ls /sys/class/net); false\n"
    with pytest.raises(ImageError, match="interfaces: lo\n"):
        ensure_image(make_task(dockerfile=dockerfile), config)


def test_a_prebuilt_image_is_used_without_a_dockerfile(make_task: MakeTask, config: SandboxConfig) -> None:
    task = make_task(toml='[environment]\ndocker_image = "nightschool-base:bookworm"\nworkdir = "/work"\n')
    (task.path / "environment" / "Dockerfile").unlink()
    image = engine.connect().images.get(ensure_image(task, config))
    assert image.attrs["Config"]["WorkingDir"] == "/work"


def test_a_feature_that_cannot_be_run_is_refused_by_name(make_task: MakeTask, config: SandboxConfig) -> None:
    with pytest.raises(SandboxError, match=r"\[environment\]\.gpus"):
        ensure_image(make_task(toml="[environment]\ngpus = 1\n"), config)
